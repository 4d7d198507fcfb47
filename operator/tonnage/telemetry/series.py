"""The series of a Prometheus' answer. An answer that is not valid as a whole is rejected.

A missing answer is None and means "unknown"; it never means zero.
"""

import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import msgspec

MAX_CLOCK_GAP_SECONDS: Final = 60.0
"""Clocks of one cluster differ by less. An answer from another time is cached or forged."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an instant query: its value at `evaluated`, Unix time by Prometheus' clock.

    The value is None if it is NaN (a quantile of no observations) or infinite: unknown, which
    differs from a missing series.
    """

    labels: Mapping[str, str]
    value: float | None
    evaluated: float

    @property
    def age_seconds(self) -> float | None:
        """The age of the sample, for a query of `timestamp(...)`; None if the value is unknown."""
        return None if self.value is None else self.evaluated - self.value


Query: TypeAlias = Callable[[str], Awaitable[tuple[Series, ...] | None]]
"""Sends an instant query. Never raises, and returns within the deadline: None means "unknown".

An empty answer is an answer: Prometheus has no such series.
"""


async def no_prometheus(query: str) -> None:
    """Implement Ask for an operator without Prometheus."""


class NotUnderstoodError(ValueError):
    """The answer is not one to an instant query; the message quotes nothing."""


class _Sample(msgspec.Struct):
    """One element of `data.result` (https://prometheus.io/docs/prometheus/latest/querying/api)."""

    metric: dict[str, str]
    value: tuple[float, str]


def read_vector(result: Any, now: float) -> tuple[Series, ...]:
    """Read the series of an answer that arrived at `now`, Unix time. Raises NotUnderstoodError.

    One invalid series invalidates the answer: to skip it would make a replica seem to be missing.
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
        raise NotUnderstoodError("the answer's time is over a minute off the operator's clock")
    try:
        value = float(text)
    except ValueError:
        raise NotUnderstoodError("a value is not a number") from None
    labels = MappingProxyType(sample.metric)
    return Series(labels, value if math.isfinite(value) else None, evaluated)
