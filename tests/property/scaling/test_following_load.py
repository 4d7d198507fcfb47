"""Simulated replicas under a load that rises and falls: neither too many of them nor too few.

Whole days are played by `python -m benchmarks.in_memory.day_of_load`.
"""

import pytest

from benchmarks.in_memory.day_of_load import (
    TARGET_SECONDS,
    FollowedLoad,
    Pace,
)
from tests.support.fleets.placing import CATALOG, LLAMA_70B
from tests.support.load.replica_capacity import replica_capacity
from tests.support.load.synthetic_day import SyntheticDay, oracle_replica_hours, share_over
from tonnage.fit.model import EngineOptions, Parallelism

CAPACITY = replica_capacity(
    LLAMA_70B, "mi300x", Parallelism(), EngineOptions(CATALOG.default_release, 32768), 2000, 500
)
MOST = CAPACITY.most_per_second
DAY = SyntheticDay(quiet=1.5 * MOST, busy=10 * MOST)
ORACLES_SHARE = 0.97
"""Of what a replica can do: the first token is late for a tenth of the requests then."""


MOST_LATE = 0.05
MOST_MORE = 0.15
"""Over the oracle, at its worst hours: a rising load takes whole replicas, and a falling one is
waited for. Over a day it is at most a tenth."""


@pytest.mark.parametrize(
    ("hours", "targets"),
    [((7, 9), {"timeToFirstToken": "2s"}), ((17, 19), {"kvCacheUsage": 0.8})],
)
def test_following_a_day_costs_little_more_than_the_optimum(
    hours: tuple[int, int], targets: dict[str, object]
) -> None:
    seconds = range(3600 * hours[0], 3600 * hours[1])
    outcome = FollowedLoad(CAPACITY, targets, Pace()).play(DAY, seconds)
    must = oracle_replica_hours(DAY, ORACLES_SHARE * MOST, seconds)
    assert outcome.replica_hours / must - 1 <= MOST_MORE
    assert share_over(outcome.first_token_seconds, TARGET_SECONDS) <= MOST_LATE
    assert outcome.changes <= 10


def test_a_constant_load_converges() -> None:
    steady = SyntheticDay(quiet=4.3 * MOST, busy=4.3 * MOST)
    outcome = FollowedLoad(CAPACITY, {"waitingRequests": 2}, Pace()).play(steady, range(2 * 3600))
    assert 5 <= outcome.by_hour[1] <= 6, "five carry it, and one more when many come by chance"
    assert share_over(outcome.first_token_seconds, TARGET_SECONDS) <= MOST_LATE
    assert outcome.changes <= 12
