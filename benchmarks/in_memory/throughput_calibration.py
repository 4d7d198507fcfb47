"""`python -m benchmarks.in_memory.throughput_calibration`: fit the figures, and what they are
worth.

The effective figures of throughput.yaml are fitted to the records: one after the other is moved by
a few per cent as long as that brings estimates closer to measurements, in ever smaller moves. What
is minimised is the mean distance of estimates from measurements and of estimated from measured
ratios of comparable records (both as absolute logarithms, cut off where a record tells of another
cause), with a pull towards a neutral start, round figures that are the same for all architectures,
which decides where records say little. Sources with many records weigh less for each. How much
faster the other engines are than vLLM is fitted too, and left out of the file: hardware of which
only they have records is judged by it.

Then every source is left out once, the figures are fitted without it, and its own records
estimated: the error on measurements that the fit has not seen (the terms and the start were chosen
with all of them in view). It takes some minutes.
"""

import math
import statistics
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from unittest.mock import patch

from rich.console import Console

from accuracy.hardware import hardware_starts
from accuracy.hardware_speeds import TimedStep, steps_of
from benchmarks.in_memory.throughput_estimates import Answer, answer
from benchmarks.in_memory.throughput_pairs import pairs, share_right
from benchmarks.in_memory.throughput_records import Record, records
from tonnage.throughput.figures import ThroughputData, load_throughput_data

Point = Mapping[str, float]

_CUDA: Final = ("sm_80", "sm_89", "sm_90", "sm_100", "sm_103", "sm_120")
_ROCM: Final = ("gfx90a", "gfx942", "gfx950", "mi325x")
_SHARED: Final = (
    "bandwidth_efficiency",
    "attention_efficiency",
    "prompt_attention_efficiency",
    "seconds_per_layer",
    "seconds_per_collective",
    "seconds_per_expert_layer",
)
_COMPUTE: Final = (
    "sm_89.fp8",
    "sm_90.fp8",
    "sm_100.fp8",
    "sm_100.fp4",
    "sm_103.fp4",
    "sm_120.fp8",
    "sm_120.fp4",
    "gfx942.fp8",
    "mi325x.fp8",
    "gfx950.fp4",
)
_GLOBAL: Final = (
    "link_efficiency",
    "expert_efficiency",
    "weight_only_efficiency",
    "seconds_per_request",
)
_OLDER: Final = ("layer_factor", "compute_factor", "seconds_per_request")

_NEUTRAL: Final[Point] = {
    "bandwidth_efficiency": 0.7,
    "attention_efficiency": 0.25,
    "prompt_attention_efficiency": 0.45,
    "seconds_per_layer": 25e-6,
    "seconds_per_collective": 20e-6,
    "seconds_per_expert_layer": 100e-6,
    "fp8": 0.55,
    "fp4": 0.5,
    "link_efficiency": 0.6,
    "expert_efficiency": 0.55,
    "weight_only_efficiency": 0.55,
    "seconds_per_request": 12e-6,
    "older.layer_factor": 1.4,
    "older.compute_factor": 0.7,
    "older.seconds_per_request": 60e-6,
}
"""Where a fit starts, by what a figure's name ends in."""

_MOST: Final = 0.9
_FARTHEST: Final = 0.8
_OTHER_ENGINES: Final = "other engines are faster by"
_PULL: Final = 0.01
_CROWD: Final = -0.35
"""A record weighs this power of the number of its source's records."""

_PAIRS_WEIGHT: Final = 0.4
_OTHER_ENGINE_WEIGHT: Final = 0.5
_FIRST_MOVE: Final = 1.2
_LAST_MOVE: Final = 1.02


def main() -> int:
    """Print the fitted figures, and the errors on sources that were left out."""
    console = Console(soft_wrap=True)
    judged = [record for record in records() if record.left_out is None]
    start = neutral()
    fitted = fit(judged, start)
    for name, value in fitted.items():
        console.print(f"{name:32} {start[name]:10.4g} -> {value:10.4g}")
    _tell(console, "neutral start", _answers(judged, start))
    _tell(console, "fitted on all", _answers(judged, fitted))
    held_out: list[Answer] = []
    for source, left in _sources(judged).items():
        kept = [record for record in judged if record not in left]
        estimates = _answers(left, fit(kept, start))
        held_out += estimates
        _tell(console, f"without {source}", estimates)
    _tell(console, "held out, all sources", held_out)
    console.print(f"held out, cheaper of two: {share_right(pairs(held_out)):.1%}")
    return 0


def neutral() -> Point:
    """The start, the same for all architectures."""
    start = {}
    for name in _read(load_throughput_data()):
        start[name] = _NEUTRAL.get(name, _NEUTRAL.get(name.rpartition(".")[2], 0.0))
    return {**start, _OTHER_ENGINES: 1.1}


def fit(judged: Sequence[Record], start: Point) -> Point:
    """The figures that bring the estimates of these records closest to what was measured."""
    weights = _weights(judged)
    point, move = dict(start), _FIRST_MOVE
    best = _distance(judged, weights, point, start)
    while move > _LAST_MOVE:
        before = best
        for name in start:
            for factor in (move, 1 / move):
                tried = {**point, name: point[name] * factor}
                if _is_share(name):
                    tried[name] = min(tried[name], _MOST)
                distance = _distance(judged, weights, tried, start)
                if distance < best - 1e-5:
                    point, best = tried, distance
        if best == before:
            move = 1 + (move - 1) * 0.5
    return point


def _is_share(name: str) -> bool:
    return "efficiency" in name or name.endswith((".fp8", ".fp4"))


def _distance(
    judged: Sequence[Record], weights: Mapping[str, float], point: Point, start: Point
) -> float:
    estimates = _answers(judged, point)
    each = ((min(_apart(one, point), _FARTHEST), weights[one.record.id]) for one in estimates)
    steps = [
        min(abs(math.log(step.estimated / step.measured)), _FARTHEST) for step in own_steps(point)
    ]
    own_weight: float = len(steps) ** _CROWD
    total = sum(error * weight for error, weight in each) + sum(steps) * own_weight
    total /= sum(weights.values()) + len(steps) * own_weight
    compared = pairs(estimates, priced=False)
    apart = (min(abs(math.log(pair.estimated / pair.measured)), _FARTHEST) for pair in compared)
    pull = sum(math.log(point[name] / start[name]) ** 2 for name in start)
    return total + _PAIRS_WEIGHT * sum(apart) / max(1, len(compared)) + _PULL * pull


def _apart(answer: Answer, point: Point) -> float:
    expected = math.log(point[_OTHER_ENGINES]) if answer.record.engine != "vLLM" else 0.0
    return abs(math.log1p(answer.error) + expected)


def _weights(judged: Sequence[Record]) -> Mapping[str, float]:
    sizes = Counter(record.group for record in judged)
    return {
        record.id: sizes[record.group] ** _CROWD
        * (1.0 if record.engine == "vLLM" else _OTHER_ENGINE_WEIGHT)
        for record in judged
    }


def _answers(judged: Iterable[Record], point: Point) -> list[Answer]:
    data = _write(load_throughput_data(), point)
    with patch("tonnage.throughput.estimate.load_throughput_data", lambda: data):
        return [answer(record) for record in judged]


def own_steps(point: Point) -> list[TimedStep]:
    """The times measured on our own GPU, by the point's figures, without held-out ones."""
    data = _write(load_throughput_data(), point)
    with patch("accuracy.hardware_speeds.load_throughput_data", lambda: data):
        return [
            step for start in hardware_starts() if not start.held_out for step in steps_of(start)
        ]


def _sources(judged: Iterable[Record]) -> Mapping[str, list[Record]]:
    by_group: dict[str, list[Record]] = {}
    for record in judged:
        by_group.setdefault(record.group, []).append(record)
    return by_group


def _tell(console: Console, what: str, estimates: Sequence[Answer]) -> None:
    by_engine: dict[str, list[float]] = {}
    for one in estimates:
        by_engine.setdefault(one.record.engine or "not stated", []).append(abs(one.error))
    for engine, errors in sorted(by_engine.items()):
        median = statistics.median(errors)
        console.print(f"{what}: {engine}, {len(errors)} records, median error {median:.1%}")


def _read(data: ThroughputData) -> Point:
    known = {**data.architectures, **data.accelerators}
    point = {f"cuda.{name}": getattr(known["sm_90"], name) for name in _SHARED}
    point |= {f"rocm.{name}": getattr(known["gfx942"], name) for name in _SHARED}
    for name in _COMPUTE:
        arch, precision = name.split(".")
        point[name] = known[arch].compute_efficiency[precision]
    point |= {name: getattr(data, name) for name in _GLOBAL}
    point |= {f"older.{name}": getattr(data.older_engines[0], name) for name in _OLDER}
    return point


def _write(data: ThroughputData, point: Point) -> ThroughputData:
    """The data with the point's figures in the places where `_read` found them."""

    def moved(name: str, figures: Any) -> Any:
        family = "cuda" if name in _CUDA else "rocm" if name in _ROCM else None
        if family is None:
            return figures
        compute = {
            precision: point.get(f"{name}.{precision}", value)
            for precision, value in figures.compute_efficiency.items()
        }
        shared = {each: point[f"{family}.{each}"] for each in _SHARED}
        return figures.model_copy(update={**shared, "compute_efficiency": compute})

    older = {name: point[f"older.{name}"] for name in _OLDER}
    return data.model_copy(
        update={
            **{name: point[name] for name in _GLOBAL},
            "older_engines": (data.older_engines[0].model_copy(update=older),),
            "architectures": {name: moved(name, each) for name, each in data.architectures.items()},
            "accelerators": {name: moved(name, each) for name, each in data.accelerators.items()},
        }
    )


if __name__ == "__main__":
    sys.exit(main())
