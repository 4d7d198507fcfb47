"""A day of load, and what an oracle would spend on it that knew the load beforehand."""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tests.support.load.poisson import poisson
from tests.support.load.replica_capacity import ReplicaCapacity
from tests.support.load.simulated_vllm import SimulatedVllm

DAY_SECONDS: Final = 24 * 3600
_HUMPS: Final = ((10.5, 2.2, 0.55), (15.5, 3.0, 1.0), (20.5, 1.5, 0.45))
"""Hour, width in hours and height of the busy times: morning, afternoon, evening. Judgement, after
the shape of public traces of chat services: the night has a fifth of the afternoon."""
_HIGHEST: Final = 1.05
_TRIAL_SECONDS, _SETTLED_SECONDS, _TRIALS, _SEED = 3600, 900, 8, 1


@dataclass(frozen=True, slots=True)
class SyntheticDay:
    """Requests a second between a quiet night and a busy afternoon."""

    quiet: float
    busy: float

    def rate(self, seconds: float) -> float:
        """Requests a second at a time of the day, in seconds since midnight."""
        hour = seconds / 3600
        height = sum(
            high * math.exp(-(((hour - middle) / width) ** 2)) for middle, width, high in _HUMPS
        )
        return self.quiet + (self.busy - self.quiet) * min(1.0, height / _HIGHEST)


def share_over(seconds: Iterable[float], target: float) -> float:
    """The share of times that are longer than the target, 0 of none."""
    known = list(seconds)
    return sum(one > target for one in known) / max(1, len(known))


def rate_within(capacity: ReplicaCapacity, target_seconds: float, most_over: float) -> float:
    """The most requests a second that one replica answers so that no more than that share of them
    waits longer than the target for its first token."""
    low, high = 0.5 * capacity.most_per_second, 1.05 * capacity.most_per_second
    for _ in range(_TRIALS):
        middle = (low + high) / 2
        if share_over(_first_tokens(capacity, middle), target_seconds) <= most_over:
            low = middle
        else:
            high = middle
    return low


def _first_tokens(capacity: ReplicaCapacity, rate: float) -> list[float]:
    """Seconds to the first token under a load that came to rest."""
    replica, chance = SimulatedVllm(capacity), random.Random(_SEED)
    seconds: list[float] = []
    for second in range(_TRIAL_SECONDS):
        served = replica.advance(1.0, poisson(chance, rate))
        if second >= _SETTLED_SECONDS:
            seconds += served.first_token_seconds
    return seconds


def fewest_replicas(rate: float, rate_of_one: float) -> int:
    """What the oracle has at a moment: free to change at once, and never none."""
    return max(1, math.ceil(rate / rate_of_one))


def oracle_replica_hours(day: SyntheticDay, rate_of_one: float, seconds: range) -> float:
    """What it comes to in that time of the day, from minute to minute."""
    minutes = range(seconds.start + 30, seconds.stop, 60)
    return sum(fewest_replicas(day.rate(one), rate_of_one) for one in minutes) / 60
