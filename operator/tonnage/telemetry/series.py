"""The answer of a Prometheus as numbers: either the operator understands all of it, or none counts.

An answer that is missing is None and means "unknown"; it never stands for zero.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

MAX_CLOCK_GAP_SECONDS: Final = 60.0
"""Clocks of one cluster differ by less. An answer from another time is a cache's, or a lie."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an instant query: its value at `evaluated`, Unix time by Prometheus' clock.

    The value is None where it is NaN (a quantile of nothing) or infinite: unknown, which is not the
    same as a series that is missing.
    """

    labels: Mapping[str, str]
    value: float | None
    evaluated: float

    @property
    def age_seconds(self) -> float | None:
        """Of `timestamp(...)`: the age of the sample; None where the value is unknown."""
        return None if self.value is None else self.evaluated - self.value


Ask: TypeAlias = Callable[[str], Awaitable[tuple[Series, ...] | None]]
"""Asks an instant query. Never raises, and returns within the deadline: None is "unknown".

An empty answer is known: Prometheus has no such series.
"""


async def no_prometheus(query: str) -> None:
    """Implements Ask where the operator has no Prometheus."""


class NotUnderstoodError(ValueError):
    """The answer is not what Prometheus says to an instant query; the message quotes nothing."""


class _Sample(msgspec.Struct):
    """One element of `data.result` (https://prometheus.io/docs/prometheus/latest/querying/api)."""

    metric: dict[str, str]
    value: tuple[float, str]


def read_vector(result: Any, now: float) -> tuple[Series, ...]:
    """The series of an answer that came at `now`, Unix time. Raises NotUnderstoodError.

    One invalid series spoils the answer: without it a replica would look missing.
    """
    try:
        samples = msgspec.convert(result, list[_Sample])
    except (msgspec.ValidationError, UnicodeError):  # the latter for half a surrogate pair
        raise NotUnderstoodError("expected series with labels, a time and a value") from None
    if len({frozenset(sample.metric.items()) for sample in samples}) != len(samples):
        raise NotUnderstoodError("two series have the same labels")
    return tuple(_read_series(sample, now) for sample in samples)


def _read_series(sample: _Sample, now: float) -> Series:
    evaluated, text = sample.value
    if not abs(evaluated - now) <= MAX_CLOCK_GAP_SECONDS:  # not >, which would let NaN pass
        raise NotUnderstoodError("the answer is more than a minute away from the operator's clock")
    try:
        value = float(text)
    except ValueError:
        raise NotUnderstoodError("a value is no number") from None
    labels = MappingProxyType(sample.metric)
    return Series(labels, value if math.isfinite(value) else None, evaluated)
