"""Which of two options is cheaper, and whether the estimate ranks them so.

A pair is two records of the same model in the same precision, under the same workload: equal
lengths, the same metric, and either the same number of requests at once, or the same scenario,
or both saturated. They are two options when the accelerators differ, or the stated layouts on one
accelerator do; two runs of one option differ by what no estimate knows. Any engine counts: the
question is which hardware is cheaper. No pair is left out but those of records that are.

The cost of a token is the price of the option's GPUs over the tokens that they make. Prices are the
catalogue's dated list; when either option has none, both are compared by GPUs, as placement does.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from benchmarks.in_memory.throughput_estimates import Answer
from benchmarks.in_memory.throughput_records import Record
from tonnage.catalog.load import load_catalog


@dataclass(frozen=True, slots=True)
class Pair:
    """Two options, and how much cheaper the first is: measured and estimated cost of a token of the
    second over that of the first."""

    first: Answer
    second: Answer
    measured: float
    estimated: float

    @property
    def ranked_right(self) -> bool:
        """Whether the estimate calls the same one cheaper; a tie calls neither."""
        return (self.measured - 1) * (self.estimated - 1) > 0


def pairs(answers: Sequence[Answer], *, priced: bool = True) -> list[Pair]:
    """All pairs, at list prices or at equal ones (which ranks tokens a second of a GPU)."""
    return [_pair(*two, priced=priced) for two in _comparable(answers)]


def share_right(compared: Sequence[Pair]) -> float:
    """The share of pairs that the estimate ranks right."""
    return sum(pair.ranked_right for pair in compared) / len(compared)


def _comparable(answers: Sequence[Answer]) -> Iterator[tuple[Answer, Answer]]:
    alike: dict[Hashable, list[Answer]] = defaultdict(list)
    for answer in answers:
        alike[_workload(answer.record)].append(answer)
    for group in alike.values():
        for first, second in combinations(group, 2):
            if _option(first.record) != _option(second.record):
                yield first, second


def _workload(record: Record) -> Hashable:
    load: Hashable = record.concurrency
    if record.scenario.startswith("mlperf-"):
        load = record.scenario
    return record.model, record.precision, record.lengths, record.metric, load


def _option(record: Record) -> Hashable:
    return record.accelerator, record.tensor, record.data


def _pair(first: Answer, second: Answer, *, priced: bool) -> Pair:
    dearer = _price_ratio(first.record, second.record) if priced else 1.0
    return Pair(
        first=first,
        second=second,
        measured=dearer * first.record.measured / second.record.measured,
        estimated=dearer * first.tokens_per_second_per_gpu / second.tokens_per_second_per_gpu,
    )


def _price_ratio(first: Record, second: Record) -> float:
    """What a GPU of the second costs over one of the first, 1 when either has no price."""
    catalog = load_catalog()
    prices = [catalog.accelerator(record.accelerator).price for record in (first, second)]
    if None in prices:
        return 1.0
    one, other = (float(price.usd_per_gpu_hour) for price in prices if price is not None)
    return other / one
