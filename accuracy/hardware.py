"""Starts of vLLM that were measured on a GPU of our own, byte for byte.

`benchmarks/gpu` measures them: random weights in the real layout, the arguments that the operator
renders. Held-out starts take no part in any correction; they were chosen before the first start.
"""

import json
from functools import cache
from typing import Any, Final

from accuracy.asking import Answer, ask_fit, figure, loaded_gib
from accuracy.measures import Error, relative_error
from accuracy.records import FOLDER, GIB, Record, read_lines
from tonnage.catalog.load import load_catalog
from tonnage.cli.fit.case import FitCase, parse_case
from tonnage.cli.fit.question import make_question
from tonnage.fit.activation.graphs import graph_bytes
from tonnage.fit.batch import plan_batch

RECORDS: Final = FOLDER / "h200.jsonl"


class KvGroup(Record):
    """Layers that share a table of KV cache blocks; a block of one layer has `page_bytes`."""

    kind: str
    layers: int
    block_size: int
    page_bytes: int


class Taken(Record):
    """What vLLM's worker counted, in bytes, and how long it took, in seconds.

    `graph_estimate_bytes` is what vLLM charged its budget for graphs, `graph_bytes` what they took.
    """

    seconds: float
    start_seconds: float
    load_seconds: float
    profile_seconds: float
    warm_seconds: float
    compile_seconds: float | None = None
    total_bytes: int
    free_bytes: int
    requested_bytes: int
    weights_bytes: int
    activation_bytes: int
    non_torch_bytes: int
    graph_estimate_bytes: int
    graph_bytes: int = 0
    kv_cache_bytes: int
    free_at_end_bytes: int
    kv_cache_tokens: float
    kv_tensor_bytes: int
    kv_blocks: int
    kv_groups: tuple[KvGroup, ...]
    model_runner: str
    backends: tuple[str, ...]
    max_num_seqs: int
    max_num_batched_tokens: int
    async_scheduling: bool
    graph_sizes: int
    graph_mode: str
    printed_kv_cache_gi_b: float
    printed_weights_gi_b: float


class Prefill(Record):
    """Prompts of `tokens` tokens, all queued at once: seconds to the last first token."""

    prompts: int
    tokens: int
    seconds: float
    median_seconds: float | None = None


class Decode(Record):
    """A batch that generates: seconds from token to token, and to the first token."""

    batch: int
    prompt: int
    steps: int
    seconds_per_token: float
    median_seconds: float
    first_median_seconds: float
    first_max_seconds: float


class Speeds(Record):
    """Times of requests."""

    prefill: tuple[Prefill, ...]
    decode: tuple[Decode, ...]


class HardwareStart(Record):
    """One measured start; `predicted_then` is what the calculation said at that time."""

    case: FitCase
    held_out: bool
    measured_on: str
    driver: str
    arguments: tuple[str, ...]
    outcome: str
    observed: Taken
    predicted_then: dict[str, Any]
    speeds: Speeds | None = None


@cache
def hardware_starts() -> tuple[HardwareStart, ...]:
    """All starts."""
    return tuple(
        HardwareStart(case=parse_case(json.dumps(line.pop("case"))), **line)
        for line in read_lines(RECORDS.name)
    )


@cache
def answered_hardware() -> tuple[tuple[HardwareStart, Answer], ...]:
    """Starts with what `tonnage fit` predicts for them, and graphs outside the budget too."""
    return tuple((start, _answer(start.case)) for start in hardware_starts())


def _answer(case: FitCase) -> Answer:
    answer = ask_fit(case)
    question = make_question(case, load_catalog()).question
    shape, options, device = question.checkpoint.shape, question.options, question.accelerator
    release = load_catalog().release(options.release)
    batch = plan_batch(shape, options, question.parallelism, device, question.device_bytes, release)
    graphs = graph_bytes(shape, question.parallelism, options, batch, device, release)
    return answer | {"perGPU": answer["perGPU"] | {"cudaGraphGiB": graphs / GIB}}


Pair = tuple[HardwareStart, Answer]


def weights_errors(pairs: tuple[Pair, ...]) -> list[Error]:
    """Relative errors of the weights, with buffers for adapters."""
    return [
        Error(
            start.case.id,
            relative_error(_loaded_bytes(answer), start.observed.weights_bytes),
        )
        for start, answer in pairs
    ]


def kv_rate_errors(pairs: tuple[Pair, ...]) -> list[Error]:
    """Relative errors of the bytes of a token in the KV cache, rounded to whole bytes."""
    return [
        Error(
            start.case.id,
            relative_error(
                round(figure(answer, "kvBytesPerTokenPerGPU") or 0),
                round(start.observed.kv_tensor_bytes / start.observed.kv_cache_tokens),
            ),
        )
        for start, answer in pairs
    ]


def capacity_errors(pairs: tuple[Pair, ...]) -> list[Error]:
    """Relative errors of the tokens that the KV cache holds."""
    return [
        Error(
            start.case.id,
            relative_error(figure(answer, "kvCacheTokens"), start.observed.kv_cache_tokens),
        )
        for start, answer in pairs
    ]


def non_torch_errors(pairs: tuple[Pair, ...]) -> list[Error]:
    """Errors of the non-torch memory, in GiB."""
    return [
        Error(start.case.id, _gib_apart(answer, "nonTorchGiB", start.observed.non_torch_bytes))
        for start, answer in pairs
    ]


def graph_errors(pairs: tuple[Pair, ...]) -> list[Error]:
    """Errors of the graphs' memory, in GiB, of starts that captured any."""
    return [
        Error(start.case.id, _gib_apart(answer, "cudaGraphGiB", start.observed.graph_bytes))
        for start, answer in pairs
        if start.observed.graph_bytes
    ]


def verdict_errors(pairs: tuple[Pair, ...]) -> list[Error]:
    """1 for each start whose verdict was wrong."""
    return [
        Error(
            start.case.id, float((answer.get("verdict") == "fits") != (start.outcome == "started"))
        )
        for start, answer in pairs
    ]


def _loaded_bytes(answer: Answer) -> float | None:
    gib = loaded_gib(answer)
    return None if gib is None else gib * GIB


def _gib_apart(answer: Answer, name: str, observed_bytes: int) -> float:
    return abs((figure(answer, name) or 0) - observed_bytes / GIB)
