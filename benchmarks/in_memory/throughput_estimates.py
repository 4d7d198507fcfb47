"""The estimate for each record: layouts that fit, and the most requests that keep to the limits."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Final

from benchmarks.in_memory.throughput_records import Record, records
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Accelerator
from tonnage.fit.memory import judge_fit
from tonnage.fit.model import EngineOptions, MemoryAccount, MemoryFit, Parallelism
from tonnage.throughput.estimate import estimate_throughput
from tonnage.throughput.model import Demand, ThroughputEstimate

TAIL: Final = 0.75
"""Mean latency over that of the 99th percentile, which MLPerf limits. Judgement."""

_NODE: Final = 8
_SHORTEST_CONTEXT: Final = 2048


@dataclass(frozen=True, slots=True)
class Layout:
    """A split of the record's GPUs into replicas that fits in memory."""

    parallelism: Parallelism
    options: EngineOptions
    account: MemoryAccount
    replicas: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What is estimated for a record: generated tokens a second of one GPU, and how."""

    record: Record
    layout: Layout
    tokens_per_second_per_gpu: float
    estimate: ThroughputEstimate

    @property
    def error(self) -> float:
        """How far off, as a share of what was measured."""
        return self.tokens_per_second_per_gpu / self.record.measured - 1


def answers() -> tuple[Answer, ...]:
    """The estimates of all records that are not left out."""
    return tuple(answer(record) for record in records() if record.left_out is None)


def answer(record: Record) -> Answer:
    """The estimate for one record, of the fastest layout where the source states none."""
    candidates = [_ask(record, layout) for layout in layouts(record)]
    return max(candidates, key=lambda each: each.tokens_per_second_per_gpu)


def estimate_once(original: Answer) -> ThroughputEstimate:
    """The estimate behind an answer, made once more."""
    return _estimate(original.record, original.layout, original.estimate.batch)


@cache
def layouts(record: Record) -> tuple[Layout, ...]:
    """The layouts that fit; ValueError when none does, for a record that should be left out."""
    accelerator = load_catalog().accelerator(record.accelerator)
    fitting = tuple(_fitting(record, accelerator))
    if not fitting:
        raise ValueError(f"{record.id}: no layout fits in memory")
    return fitting


def _fitting(record: Record, accelerator: Accelerator) -> Iterator[Layout]:
    assert record.gpus is not None, f"{record.id}: a record without GPUs is left out"
    checkpoint, catalog = record.checkpoint(), load_catalog()
    assert accelerator.memory_bytes is not None, f"{record.id}: memory is not known"
    for parallelism in _splits(record):
        options = EngineOptions(
            release=record.release or catalog.default_release,
            max_model_len=max(_SHORTEST_CONTEXT, sum(record.lengths)),
            kv_cache_dtype=record.kv_cache_dtype,
            max_num_seqs=record.max_num_seqs,
            enable_expert_parallel=parallelism.data > 1,
        )
        verdict = judge_fit(
            checkpoint, accelerator, accelerator.memory_bytes, parallelism, options, 1, catalog
        )
        if isinstance(verdict, MemoryFit):
            replicas = record.gpus // parallelism.gpus
            yield Layout(parallelism, options, verdict.account, replicas)


def _splits(record: Record) -> Iterator[Parallelism]:
    assert record.gpus is not None, f"{record.id}: a record without GPUs is left out"
    if record.tensor is not None:
        yield Parallelism(record.tensor, data=record.data or 1)
        return
    degrees = [size for size in (1, 2, 4, _NODE) if record.gpus % size == 0]
    yield from (Parallelism(size) for size in degrees)
    if record.checkpoint().shape.experts and degrees[-1] > 1:
        yield Parallelism(data=degrees[-1])


def _ask(record: Record, layout: Layout) -> Answer:
    """As many requests as are demanded, fewer where the scenario limits latency."""
    most = max(1, record.demanded // layout.replicas)
    estimate = _estimate(record, layout, most)
    if record.limits is not None and not _keeps(estimate, record.limits):
        few, most = 1, estimate.batch
        while most - few > 1:
            middle = (few + most) // 2
            if _keeps(_estimate(record, layout, middle), record.limits):
                few = middle
            else:
                most = middle
        estimate = _estimate(record, layout, few)
    made = estimate.tokens_per_second / layout.parallelism.gpus
    if record.metric == "input":
        made *= record.lengths[0]
    return Answer(record, layout, made, estimate)


def _keeps(estimate: ThroughputEstimate, limits: tuple[float, float]) -> bool:
    first_token, per_token = limits
    return (
        estimate.time_to_first_token_seconds <= TAIL * first_token
        and estimate.time_per_output_token_seconds <= TAIL * per_token
    )


def _estimate(record: Record, layout: Layout, concurrency: int) -> ThroughputEstimate:
    catalog = load_catalog()
    estimate = estimate_throughput(
        record.checkpoint(),
        catalog.accelerator(record.accelerator),
        layout.parallelism,
        layout.options,
        layout.account,
        Demand(*record.lengths, concurrency),
        catalog,
    )
    assert estimate is not None, f"{record.id}: no figures for {record.accelerator}"
    return estimate
