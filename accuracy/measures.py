"""How far predictions are off: errors of many records, condensed."""

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EXACT = 1e-9
"""Relative error below which a figure is the same but for rounding."""


@dataclass(frozen=True, slots=True)
class Error:
    """A record and how far its prediction is off; 1.0 is wrong altogether."""

    id: str
    size: float


def relative_error(predicted: float | None, observed: float) -> float:
    """Relative error; an answer that is missing is wrong by 100 %."""
    if predicted is None:
        return 1.0
    return abs(predicted - observed) / observed


def median(errors: Sequence[Error]) -> float | None:
    """The median, None without records."""
    return statistics.median(error.size for error in errors) if errors else None


def percentile(errors: Sequence[Error], share: float) -> float | None:
    """The nearest-rank percentile, None without records."""
    ordered = sorted(error.size for error in errors)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else None


def share_within(errors: Sequence[Error], bound: float) -> float | None:
    """The share of records that are off by at most `bound`, None without records."""
    if not errors:
        return None
    return sum(error.size <= max(bound, EXACT) for error in errors) / len(errors)


def worst(errors: Iterable[Error], count: int) -> list[Error]:
    """The largest errors, worst first."""
    wrong = (error for error in errors if error.size > EXACT)
    return sorted(wrong, key=lambda error: -error.size)[:count]
