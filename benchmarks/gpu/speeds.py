"""Times of requests that an engine core answers: to the first token, and between tokens."""

import itertools
import random
import statistics
import time
from dataclasses import dataclass
from typing import Any, Final

_PROMPTS: Final = (512, 4096, 32768)
_BATCHES: Final = (1, 16, 64, 256)
_STEPS: Final = 48
"""Fewest steps, with all requests of a batch generating, over which a token's time is the mean."""

_STEP_TOKENS: Final = 8192
"""max_num_batched_tokens: prompts of a batch are read in steps of this many tokens."""


@dataclass(frozen=True, slots=True)
class Run:
    """Seconds from the moment all requests were queued to each one's first token, and between two
    tokens while all generate."""

    firsts: list[float]
    gaps: list[float]


def measure_speeds(core: Any, prompt: int, vocabulary: int) -> dict[str, Any]:
    """Time to first token of single and of many prompts, and time per output token by batch.

    `prompt` is the length of the prompts, in tokens, while the time per output token is measured.
    """
    random.seed(1)
    _drive(core, [512] * 4, 8, vocabulary)
    _drive(core, [32768], 2, vocabulary)
    prefill = []
    for length in _PROMPTS:
        times = 3 if length < _PROMPTS[-1] else 1
        firsts = [_drive(core, [length], 1, vocabulary).firsts[0] for _ in range(times)]
        prefill.append({"prompts": 1, "tokens": length, "seconds": statistics.median(firsts)})
    many = _drive(core, [512] * 64, 1, vocabulary).firsts
    prefill.append(
        {
            "prompts": 64,
            "tokens": 512,
            "seconds": max(many),
            "medianSeconds": statistics.median(many),
        }
    )
    return {
        "prefill": prefill,
        "decode": [_decode(core, batch, prompt, vocabulary) for batch in _BATCHES],
    }


def _decode(core: Any, batch: int, prompt: int, vocabulary: int) -> dict[str, Any]:
    tokens = _STEPS + batch * prompt // _STEP_TOKENS + 16
    run = _drive(core, [prompt] * batch, tokens, vocabulary)
    return {
        "batch": batch,
        "prompt": prompt,
        "steps": len(run.gaps),
        "secondsPerToken": statistics.mean(run.gaps),
        "medianSeconds": statistics.median(run.gaps),
        "firstMedianSeconds": statistics.median(run.firsts),
        "firstMaxSeconds": max(run.firsts),
    }


def _drive(core: Any, lengths: list[int], tokens: int, vocabulary: int) -> Run:
    """Run the requests, all at once, to their end."""
    names = [_add(core, length, tokens, vocabulary) for length in lengths]
    firsts: dict[str, float] = {}
    moments: list[float] = []
    running = set(names)
    started = time.perf_counter()
    while running:
        outputs, executed = core.step_fn()
        core.post_step(executed)
        now = time.perf_counter()
        answers = [a for part in (outputs or {}).values() for a in part.outputs]
        if len(firsts) == len(running) == len(names) == len(answers):
            moments.append(now)
        for answer in answers:
            if answer.new_token_ids:
                firsts.setdefault(answer.request_id, now - started)
            if answer.finish_reason is not None:
                running.discard(answer.request_id)
    while core.scheduler.has_requests() or core.batch_queue:
        core.step_fn()
    gaps = [later - earlier for earlier, later in itertools.pairwise(moments)]
    return Run([firsts[name] for name in names], gaps)


def _add(core: Any, length: int, tokens: int, vocabulary: int) -> str:
    """Queue a request of random tokens; its name."""
    from vllm.sampling_params import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    name = f"{time.monotonic_ns()}-{random.random()}"
    request = EngineCoreRequest(
        request_id=name,
        prompt_token_ids=[random.randrange(1000, vocabulary - 1000) for _ in range(length)],
        mm_features=None,
        sampling_params=SamplingParams(
            temperature=1.0, max_tokens=tokens, ignore_eos=True, detokenize=False
        ),
        pooling_params=None,
        arrival_time=time.time(),
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )
    core.add_request(*core.preprocess_add_request(request))
    return name
