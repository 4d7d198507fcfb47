"""What was measured of the load, pod by pod, as it came: nothing is checked yet.

A number is NaN where the source said that it is none. A pod of which some signal is missing is left
out, which is something else.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LARGEST_AMOUNT: Final = 1e12
"""More requests, or seconds, than any cluster has: above it the source is wrong."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Seconds of all observations and their number, both a second of the last few minutes."""

    seconds: float
    observations: float

    @property
    def is_sound(self) -> bool:
        """Whether both are numbers that can be."""
        return is_amount(self.seconds) and is_amount(self.observations)

    @property
    def value(self) -> float | None:
        """Seconds of one observation on the average; None where none was made."""
        return self.seconds / self.observations if self.observations > 0 else None


@dataclass(frozen=True, slots=True)
class PodLoad:
    """One replica: requests that run and wait, and the share of its KV cache that is in use, on
    the average of the last minute; `age_seconds` is the age of the newest sample.

    The latencies are None where nobody asked for them.
    """

    running: float
    waiting: float
    kv_usage: float
    age_seconds: float
    first_token: Mean | None = None
    prefill: Mean | None = None
    per_token: Mean | None = None


@dataclass(frozen=True, slots=True)
class Queue:
    """Requests that wait in front of all replicas, and the age of the oldest sample of them."""

    requests: float
    age_seconds: float


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """All that was measured at one moment, by pod; `queue` is None where nothing is known of one,
    or nobody asked."""

    pods: Mapping[str, PodLoad]
    queue: Queue | None = None


@dataclass(frozen=True, slots=True)
class Look:
    """A look at the load: what was measured, None where there was no answer that can be used."""

    measured: MeasuredLoad | None


def is_amount(value: float) -> bool:
    """Whether it is a number from 0 to the largest that any count comes to."""
    return 0 <= value <= LARGEST_AMOUNT
