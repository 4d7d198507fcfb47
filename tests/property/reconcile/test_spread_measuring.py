"""What vLLM measures of one placement changes no other placement: no status, no correction."""

import asyncio
from collections.abc import Iterable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import Cluster
from tests.support.in_memory.spreading import (
    H100_CHILD,
    H100_POOL,
    MI300X_CHILD,
    MI300X_POOL,
    two_pools,
)
from tonnage.engines.metrics import MeasuredCache
from tonnage.fit.calibration.corrections import MemoryCorrection
from tonnage.kube.protocol import Object

CHILDREN = {MI300X_POOL: MI300X_CHILD, H100_POOL: H100_CHILD}
ACCELERATORS = {MI300X_POOL: "mi300x", H100_POOL: "h100-sxm-80gb"}

Step = tuple[str, float | None, bool]
"""A pool, what part of the prediction its replicas tell (None: nothing any more), and whether their
blocks were given."""

steps = st.tuples(
    st.sampled_from(sorted(CHILDREN)),
    st.none() | st.sampled_from([0.0001, 0.5, 0.99, 1.0, 1.02, 2.0]),
    st.sampled_from([False, False, True]),
)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, min_size=1, max_size=5))
def test_a_measurement_of_one_placement_changes_no_other(history: list[Step]) -> None:
    both = asyncio.run(play(history))
    for pool in CHILDREN:
        alone = asyncio.run(play([step for step in history if step[0] == pool]))
        assert measured(both, pool) == measured(alone, pool)
        assert correction_registry(both, pool) == correction_registry(alone, pool)


async def play(history: Iterable[Step]) -> Cluster:
    cluster = await two_pools()
    for pool, share, overridden in history:
        if share is None:
            cluster.measured.pop(CHILDREN[pool], None)
        else:
            tokens = max(1, int(measured(cluster, pool)["kvCacheTokens"] * share))
            cluster.measured[CHILDREN[pool]] = MeasuredCache(tokens, overridden=overridden)
        await cluster.resync()
    return cluster


def measured(cluster: Cluster, pool: str) -> Object:
    (placement,) = (one for one in cluster.status()["placements"] if one["pool"] == pool)
    return dict(placement)


def correction_registry(cluster: Cluster, pool: str) -> list[MemoryCorrection]:
    known = cluster.correction_registry.known().entries
    return [one for one in known if one.key.accelerator == ACCELERATORS[pool]]
