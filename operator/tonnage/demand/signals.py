"""Measurements of the load by pod, as the source returned them, without any check.

A value is NaN if the source returned NaN. A pod without one of the signals is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

LARGEST_AMOUNT: Final = 1e12
"""More requests or seconds than any cluster has: a larger value is an error of the source."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Seconds of all observations and their number, each per second over the last few minutes."""

    seconds: float
    observations: float

    @property
    def is_sound(self) -> bool:
        """Whether both values are in range."""
        return is_amount(self.seconds) and is_amount(self.observations)

    @property
    def value(self) -> float | None:
        """Average seconds of one observation; None without observations."""
        return self.seconds / self.observations if self.observations > 0 else None


@dataclass(frozen=True, slots=True)
class PodLoad:
    """One replica: running and waiting requests, and the used share of its KV cache, averaged over
    the last minute; `age_seconds` is the age of the newest sample.

    A latency is None if no target needs it; `first_token` is also measured for scale to zero.
    """

    running: float
    waiting: float
    kv_usage: float
    age_seconds: float
    first_token: Mean | None = None
    prefill: Mean | None = None
    per_token: Mean | None = None

    @property
    def has_answered(self) -> bool:
        """Whether it has answered a request in the last few minutes, as far as that is measured."""
        return self.first_token is not None and self.first_token.observations > 0


@dataclass(frozen=True, slots=True)
class QueueSample:
    """Requests that wait in front of all replicas, and the age of the oldest sample."""

    requests: float
    age_seconds: float


@dataclass(frozen=True, slots=True)
class MeasuredLoad:
    """All measurements of one moment, by pod; `queue` is None without a sample or if the spec names
    no metric for it."""

    pods: Mapping[str, PodLoad]
    queue: QueueSample | None = None


@dataclass(frozen=True, slots=True)
class LoadSample:
    """One sample of the load: the measurements, None if Prometheus gave no usable answer."""

    measured: MeasuredLoad | None


def is_amount(value: float) -> bool:
    """Whether the value is from 0 to LARGEST_AMOUNT."""
    return 0 <= value <= LARGEST_AMOUNT
