"""What Prometheus answered, read strictly: either all of it is understood, or none of it counts."""

import math
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, TypeAlias

LONGEST_CLOCK_GAP_SECONDS: Final = 60.0
"""Clocks of one cluster differ by less. An answer from another time is a cache's, or a lie."""


@dataclass(frozen=True, slots=True)
class Series:
    """One series of an instant query: its value at `evaluated`, Unix time by Prometheus' clock.

    The value is None where it is no number (a quantile of nothing) or infinite: an opinion of
    nobody, which is told apart from a series that is missing.
    """

    labels: Mapping[str, str]
    value: float | None
    evaluated: float

    @property
    def age_seconds(self) -> float | None:
        """Of `timestamp(...)`: how old the sample is; None where that cannot be told."""
        return None if self.value is None else self.evaluated - self.value


Ask: TypeAlias = Callable[[str], Awaitable[tuple[Series, ...] | None]]
"""Asks an instant query. Never raises and never takes long: None is no opinion.

An empty answer is an opinion: Prometheus knows of no such series.
"""


async def ask_nobody(query: str) -> None:
    """The answer where no Prometheus is known."""


class NotUnderstoodError(ValueError):
    """The answer is not what Prometheus says to an instant query; the message quotes nothing."""


def read_vector(result: Any, now: float) -> tuple[Series, ...]:
    """The series of an answer that came at `now`, Unix time. Raises NotUnderstoodError.

    One series that cannot be read spoils the answer: without it a replica would look missing.
    """
    if not isinstance(result, list):
        raise NotUnderstoodError("the result is no list of series")
    found = tuple(_read_series(body, now) for body in result)
    if len({frozenset(series.labels.items()) for series in found}) != len(found):
        raise NotUnderstoodError("two series have the same labels")
    return found


def _read_series(body: Any, now: float) -> Series:
    match body:
        case {"metric": dict(labels), "value": [int() | float() as evaluated, str(value)]}:
            if not _are_text(labels.values()):
                raise NotUnderstoodError("a label has a value that is no text")
            # Compared and not subtracted: an integer may be too large to be a float.
            gap = LONGEST_CLOCK_GAP_SECONDS
            if not now - gap <= evaluated <= now + gap:
                raise NotUnderstoodError("the answer is of another time")
            return Series(MappingProxyType(labels), _read_value(value), float(evaluated))
    raise NotUnderstoodError("a series has no labels, time and value")


def _are_text(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _read_value(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        raise NotUnderstoodError("a value is no number") from None
    return value if math.isfinite(value) else None
