"""What vLLM measured while replicas are spread: each placement is compared with its own prediction,
the condition reports the one that is farthest off, and each yields its own correction."""

import pytest

from tests.support.in_memory.cluster import L40S, MI300X, Cluster
from tests.support.in_memory.controllers import crashing, ready
from tests.support.in_memory.serving import SETTLED
from tests.support.in_memory.spreading import (
    H100_CHILD,
    H100_POOL,
    L40S_POOL,
    MI300X_CHILD,
    MI300X_POOL,
    ask,
    lose,
    running,
    scarce,
    spread,
    two_pools,
)
from tonnage.engines.metrics import MeasuredCache
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS
from tonnage.kube.protocol import Object

KIND = "PredictionAccurate"
SHORT_OF_CACHE = (
    "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (0.6 GiB)."
)


def placements(cluster: Cluster) -> dict[str, Object]:
    return {placement["pool"]: placement for placement in cluster.status()["placements"]}


async def measure(cluster: Cluster, **shares: float) -> None:
    """vLLM measures these shares of the predicted KV cache, by accelerator."""
    for child, pool, name in (
        (MI300X_CHILD, MI300X_POOL, "mi300x"),
        (H100_CHILD, H100_POOL, "h100"),
    ):
        if name in shares:
            tokens = int(placements(cluster)[pool]["kvCacheTokens"] * shares[name])
            cluster.measured[child] = MeasuredCache(tokens)
    await cluster.resync()


def corrections(cluster: Cluster) -> dict[str, int]:
    """Bytes of the corrections, by accelerator."""
    return {
        each.key.accelerator: each.extra_bytes
        for each in cluster.correction_registry.known().entries
    }


async def test_each_placement_is_compared_with_its_own_prediction() -> None:
    cluster = await two_pools()
    await measure(cluster, mi300x=1, h100=0.8)
    reported = placements(cluster)
    for pool, share in ((MI300X_POOL, 1), (H100_POOL, 0.8)):
        tokens = int(reported[pool]["kvCacheTokens"] * share)
        assert reported[pool]["measured"]["kvCacheTokens"] == tokens
        assert reported[pool]["measuredKvCacheTokens"] == tokens


@pytest.mark.parametrize(
    ("mi300x", "h100", "want"),
    [
        pytest.param(1, 0.8, ("False", "MeasuredLess", H100_POOL), id="the second one is off"),
        pytest.param(0.8, 1, ("False", "MeasuredLess", MI300X_POOL), id="the first one is off"),
        pytest.param(0.8, 0.2, ("False", "MeasuredLess", H100_POOL), id="one is off by more"),
        pytest.param(1.5, 0.95, ("False", "MeasuredMore", MI300X_POOL), id="more is off, too"),
        pytest.param(1, 1, ("True", "AsPredicted", MI300X_POOL), id="both hold"),
    ],
)
async def test_the_condition_reports_the_one_that_is_farthest_off(
    mi300x: float, h100: float, want: tuple[str, str, str]
) -> None:
    status, reason, pool = want
    cluster = await two_pools()
    await measure(cluster, mi300x=mi300x, h100=h100)
    assert cluster.conditions()[KIND] == (status, reason)
    assert cluster.message(KIND).startswith(f"on {pool} (placement ")
    assert {**cluster.conditions(), KIND: None} == {**SETTLED, KIND: None}


async def test_each_yields_its_own_correction_and_moves_no_replica() -> None:
    cluster = await two_pools()
    before, templates = running(cluster), cluster.api.objects(DEPLOYMENTS)
    await measure(cluster, mi300x=1, h100=0.8)
    assert corrections(cluster).keys() == {"h100-sxm-80gb"}
    await measure(cluster, mi300x=0.9)
    assert corrections(cluster).keys() == {"h100-sxm-80gb", "mi300x"}
    await cluster.resync()
    assert running(cluster) == before
    assert [body["spec"] for body in cluster.api.objects(DEPLOYMENTS)] == [
        body["spec"] for body in templates
    ]


async def test_a_missing_measurement_does_not_hide_the_others() -> None:
    cluster = await two_pools()
    await measure(cluster, h100=0.8)
    reported = placements(cluster)
    assert "measured" not in reported[MI300X_POOL]
    assert "measured" in reported[H100_POOL]
    assert H100_POOL in cluster.message(KIND)


async def test_a_known_measurement_stays_while_the_other_placement_changes() -> None:
    cluster = await two_pools()
    await measure(cluster, mi300x=1, h100=0.8)
    before = placements(cluster)
    cluster.measured.clear()
    await ask(cluster, 5)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    for pool, reported in placements(cluster).items():
        assert reported["measured"] == before[pool]["measured"]


async def test_a_placement_that_rolls_out_has_no_measurement_of_the_new_plan() -> None:
    cluster = await two_pools()
    await measure(cluster, mi300x=1, h100=0.8)
    cluster.measured.clear()
    cluster.apply("llama", spread(4, engine={"vllm": {"maxNumBatchedTokens": 2048}}))
    await cluster.settle()
    assert all("measured" not in placement for placement in placements(cluster).values())
    assert KIND not in cluster.conditions()


async def test_the_same_measurements_write_nothing_more() -> None:
    cluster = await two_pools()
    await measure(cluster, mi300x=0.9, h100=0.8)
    await cluster.resync()
    cluster.api.calls.clear()
    cluster.clock.advance(3600)
    await cluster.resync()
    assert [call for call in cluster.api.calls if call.verb not in ("get", "list")] == []


async def test_when_one_placement_carries_all_the_condition_reports_only_it() -> None:
    cluster = await two_pools()
    await measure(cluster, mi300x=1, h100=0.8)
    await ask(cluster, 2)
    assert cluster.conditions()[KIND] == ("True", "AsPredicted")
    assert cluster.message(KIND).startswith("a replica holds ")


@pytest.mark.parametrize("takes_most", [0, 1])
async def test_two_pools_of_one_accelerator_yield_one_correction_and_converge(
    takes_most: int,
) -> None:
    """They have one key: the one that takes most memory counts, in every reconcile."""
    cluster = Cluster(
        {**MI300X, "labels": {"rack": "a"}, "gpusPerNode": 2},
        {**MI300X, "name": "more", "labels": {"rack": "b"}, "gpusPerNode": 2},
    )
    declare(cluster, "rack-a", "a")
    declare(cluster, "rack-b", "b")
    await ask(cluster, 4)
    first, second = cluster.status()["placements"]
    tokens = first["kvCacheTokens"]
    names = [f"llama-{placement['name']}" for placement in (first, second)]
    most, other = names[takes_most], names[1 - takes_most]
    cluster.measured = {
        most: MeasuredCache(int(tokens * 0.8)),
        other: MeasuredCache(int(tokens * 0.9)),
    }
    await cluster.resync()
    (correction,) = cluster.correction_registry.known().entries
    missed = 0.2 * first["memory"]["kvCacheGiB"] * 2**30
    assert correction.extra_bytes == pytest.approx(missed, rel=0.02)
    for _ in range(3):
        await cluster.resync()
        assert cluster.correction_registry.known().entries == (correction,)
    cluster.measured[most] = MeasuredCache(tokens)
    await cluster.resync()
    (changed,) = cluster.correction_registry.known().entries
    assert 0 < changed.extra_bytes < correction.extra_bytes


async def test_a_secondary_start_without_memory_yields_a_correction_of_its_own_devices() -> None:
    cluster = scarce()
    dies = crashing(message=SHORT_OF_CACHE)
    cluster.behaviours["llama"] = lambda pod: (
        dies(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    cluster.apply("llama", spread(4))
    await cluster.settle()
    await cluster.wait(60)
    assert corrections(cluster).keys() == {"h100-sxm-80gb"}


async def test_a_measurement_of_a_lost_pool_does_not_apply_to_the_next() -> None:
    cluster = await two_pools()
    await measure(cluster, mi300x=1, h100=0.8)
    lose(cluster, "h100")
    cluster.join(**L40S)
    await cluster.settle()
    reported = placements(cluster)
    assert reported.keys() == {MI300X_POOL, L40S_POOL}
    assert "measured" not in reported[L40S_POOL]
    assert cluster.conditions()[KIND] == ("True", "AsPredicted")


def declare(cluster: Cluster, name: str, rack: str) -> None:
    """A pool of the nodes of a rack."""
    cluster.api.put(
        ACCELERATOR_POOLS, {"metadata": {"name": name}, "spec": {"nodeSelector": {"rack": rack}}}
    )
    cluster.watch()
