"""What a simulated replica shows on /metrics: the text of a real vLLM 0.32.0 with other values.

Names, types, labels, buckets and order are those that were recorded; what is not played (prefix
caching, preemption, multi-modal input, tokens of each step, the process) keeps its recorded value.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Final

from tests.support.load.simulated_vllm import FinishedRequest, Served, SimulatedVllm

RECORDED: Final = Path(__file__).parents[2] / "data" / "vllm-metrics" / "idle.txt"
BLOCK_TOKENS: Final = 16
"""vLLM's block on GPUs; the recorded one is that of a CPU."""

_SAMPLE: Final = re.compile(r"(?P<name>[\w:]+)(?:\{(?P<labels>.*)\})? (?P<value>\S+)")
_LABEL: Final = re.compile(r'(\w+)="([^"]*)"')
_APART: Final = ("le", "reason", "source", "finished_reason")


@dataclass(frozen=True, slots=True)
class _Line:
    """A line of the recorded text; a comment has no name.

    `key` is the name and, where series of that name differ in a label, that label's value.
    """

    text: str
    name: str = ""
    labels: str = ""
    value: str = ""
    key: str = ""


@cache
def _recorded() -> tuple[_Line, ...]:
    return tuple(map(_read_line, RECORDED.read_text("utf-8").splitlines()))


def _read_line(text: str) -> _Line:
    match = None if text.startswith("#") else _SAMPLE.fullmatch(text)
    if match is None:
        return _Line(text)
    name, labels = match["name"], match["labels"] or ""
    by_label = dict(_LABEL.findall(labels))
    apart = next((by_label[one] for one in _APART if one in by_label), None)
    return _Line(text, name, labels, match["value"], f"{name} {apart}" if apart else name)


class _Histogram:
    """Observations in the recorded buckets, the last of which has no bound."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._bounds = [
            line.key.rpartition(" ")[2] for line in _recorded() if line.name == f"{name}_bucket"
        ]
        self._most = [float(bound) for bound in self._bounds]
        self._counts = [0.0] * len(self._most)
        self._sum = 0.0

    def observe(self, value: float, times: float = 1.0) -> None:
        """Count a value that was seen so many times."""
        self._counts[bisect_left(self._most, value)] += times
        self._sum += value * times

    def values(self) -> Iterator[tuple[str, float]]:
        """Its series by their keys."""
        yield f"{self._name}_sum", self._sum
        yield f"{self._name}_count", sum(self._counts)
        for bound, count in zip(self._bounds, accumulate(self._counts), strict=True):
            yield f"{self._name}_bucket {bound}", count


OfRequest = Callable[[FinishedRequest], float]

_LATENCIES: Final[dict[str, OfRequest]] = {
    "vllm:e2e_request_latency_seconds": lambda one: one.seconds,
    "vllm:request_queue_time_seconds": lambda one: one.queue_seconds,
    "vllm:request_prefill_time_seconds": lambda one: one.first_token_seconds - one.queue_seconds,
    "vllm:request_decode_time_seconds": lambda one: one.seconds - one.first_token_seconds,
    "vllm:request_inference_time_seconds": lambda one: one.seconds - one.queue_seconds,
}
"""Observed when a request ends."""

_FIRST_TOKEN: Final = "vllm:time_to_first_token_seconds"
_INTER_TOKEN: Final = "vllm:inter_token_latency_seconds"
_PER_OUTPUT_TOKEN: Final = "vllm:request_time_per_output_token_seconds"
_PROMPT_LENGTHS: Final = ("vllm:request_prompt_tokens", "vllm:request_prefill_kv_computed_tokens")
_ANSWER_LENGTHS: Final = (
    "vllm:request_generation_tokens",
    "vllm:request_max_num_generation_tokens",
    "vllm:request_params_max_tokens",
)
_ONES: Final = ("vllm:request_params_n",)
_HISTOGRAMS: Final = (
    *(_FIRST_TOKEN, _INTER_TOKEN, _PER_OUTPUT_TOKEN),
    *(*_LATENCIES, *_PROMPT_LENGTHS, *_ANSWER_LENGTHS, *_ONES),
)


class VllmExposition:
    """The metrics of one replica since its start, as vLLM counts them."""

    def __init__(self, replica: SimulatedVllm, model_name: str) -> None:
        self._replica = replica
        self._model_name = model_name
        self._histograms = {name: _Histogram(name) for name in _HISTOGRAMS}
        self._prompt_tokens = 0.0
        self._generated_tokens = 0.0
        self._answered = 0

    def learn(self, served: Served) -> None:
        """Count what the replica did in a span of time."""
        capacity, histograms = self._replica.capacity, self._histograms
        self._prompt_tokens += len(served.first_token_seconds) * capacity.input_tokens
        self._generated_tokens += served.tokens_generated
        self._answered += len(served.finished)
        for seconds in served.first_token_seconds:
            histograms[_FIRST_TOKEN].observe(seconds)
        if served.tokens_generated:
            mean = served.running_seconds / served.tokens_generated
            histograms[_INTER_TOKEN].observe(mean, served.tokens_generated)
        for one in served.finished:
            self._learn_lengths()
            for name, seconds_of in _LATENCIES.items():
                histograms[name].observe(seconds_of(one))
            decoding = one.seconds - one.first_token_seconds
            histograms[_PER_OUTPUT_TOKEN].observe(decoding / max(1, capacity.output_tokens - 1))

    def _learn_lengths(self) -> None:
        capacity = self._replica.capacity
        for names, length in (
            (_PROMPT_LENGTHS, capacity.input_tokens),
            (_ANSWER_LENGTHS, capacity.output_tokens),
            (_ONES, 1),
        ):
            for name in names:
                self._histograms[name].observe(length)

    def text(self, **added: str) -> str:
        """What a scrape is answered now; `added` are labels of every series."""
        values = dict(self._values())
        prefix = "".join(f'{label}="{value}",' for label, value in added.items())
        return "".join(f"{line}\n" for line in self._lines(values, prefix))

    def _lines(self, values: dict[str, float], prefix: str) -> Iterator[str]:
        for line in _recorded():
            if not line.name:
                yield line.text
                continue
            labels = line.labels.replace('model_name="tiny"', f'model_name="{self._model_name}"')
            if line.name == "vllm:cache_config_info":
                labels = self._cache_labels(labels)
            value = str(float(values[line.key])) if line.key in values else line.value
            labels = (prefix + labels).rstrip(",")
            yield f"{line.name}{{{labels}}} {value}" if labels else f"{line.name} {value}"

    def _values(self) -> Iterator[tuple[str, float]]:
        """What is played, by the keys of the recorded lines."""
        replica = self._replica
        yield "vllm:num_requests_running", replica.running
        yield "vllm:num_requests_waiting", replica.waiting
        yield "vllm:num_requests_waiting_by_reason capacity", replica.waiting
        yield "vllm:kv_cache_usage_perc", replica.kv_cache_usage
        yield "vllm:prompt_tokens_total", self._prompt_tokens
        yield "vllm:prompt_tokens_by_source_total local_compute", self._prompt_tokens
        yield "vllm:prefix_cache_queries_total", self._prompt_tokens
        yield "vllm:generation_tokens_total", self._generated_tokens
        yield "vllm:request_success_total stop", self._answered
        for histogram in self._histograms.values():
            yield from histogram.values()

    def _cache_labels(self, labels: str) -> str:
        capacity = self._replica.capacity
        blocks = capacity.kv_cache_tokens // BLOCK_TOKENS
        memory = capacity.step.account.kv_cache_bytes
        changed = {
            "block_size": BLOCK_TOKENS,
            "effective_attention_block_size": BLOCK_TOKENS,
            "kv_cache_size_tokens": blocks * BLOCK_TOKENS,
            "kv_cache_memory_bytes": memory,
            "num_gpu_blocks": blocks,
        }
        return _LABEL.sub(lambda match: f'{match[1]}="{changed.get(match[1], match[2])}"', labels)
