"""What an object claims while it waits, by its plan and by its status."""

from collections.abc import Awaitable, Callable

import pytest

from tests.support.fleets.claims import claims_compared
from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.spreading import HOUR, lose, two_pools

MI300X_POOL, H100_POOL = "amd-mi300x", "nvidia-h100-sxm-80gb"


async def lacks_all(cluster: Cluster) -> None:
    cluster.occupy("mi300x-0", 8)
    cluster.occupy("h100-0", 8, "nvidia.com/gpu")
    cluster.apply("llama", spec_of())
    await cluster.settle()


async def lacks_some(cluster: Cluster) -> None:
    cluster.occupy("mi300x-0", 6)
    cluster.occupy("h100-0", 8, "nvidia.com/gpu")
    cluster.apply("llama", spec_of(replicas=5))
    await cluster.settle()


async def fits_nowhere(cluster: Cluster) -> None:
    cluster.apply("llama", spec_of(workload={"maxModelLen": 100_000_000}))
    await cluster.settle()


async def waits_for_a_person(cluster: Cluster) -> None:
    cluster.apply("llama", spec_of(approval="Manual"))
    await cluster.settle()


async def has_all(cluster: Cluster) -> None:
    cluster.apply("llama", spec_of(replicas=2))
    await cluster.settle()


@pytest.mark.parametrize(
    ("waits", "pools"),
    [
        (lacks_all, {MI300X_POOL: 1, H100_POOL: 1}),
        (lacks_some, {MI300X_POOL: 3}),
        (fits_nowhere, {}),
        (waits_for_a_person, {}),
        (has_all, {}),
    ],
)
async def test_what_an_object_claims(
    waits: Callable[[Cluster], Awaitable[None]], pools: dict[str, int]
) -> None:
    cluster = Cluster(MI300X, H100)
    with claims_compared() as compared:
        await waits(cluster)
    assert {claim.pool: claim.replicas for claim in compared[-1]} == pools


async def test_replicas_that_a_draining_pool_still_carries_are_claimed_nowhere() -> None:
    with claims_compared() as compared:
        cluster = await two_pools(4)
        lose(cluster, "mi300x")
        await cluster.settle()
        await cluster.wait(HOUR)
    assert compared[-1] != ()
    assert {claim.pool for claims in compared for claim in claims} == {H100_POOL}
    assert max(claim.replicas for claims in compared for claim in claims) == 1
