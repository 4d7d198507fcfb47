"""One event reports each migration: from where, to where and why; and nothing else counts as
one."""

from tests.support.in_memory.cluster import L40S, MI300X, Cluster, spec_of
from tests.support.in_memory.pricing import ONE_H100, on_h100, price
from tests.support.specs.statuses import placement, status
from tonnage.reconcile.report import ReplicaEvent, find_migration

MINUTE = 60.0


def migrations(cluster: Cluster) -> list[tuple[str, str]]:
    """Reason and note of each recorded migration."""
    events = zip(cluster.recorder.events, cluster.recorder.notes, strict=True)
    return [(reason, note) for (action, reason), note in events if action == "Moving"]


async def fallen_back() -> Cluster:
    cluster = await on_h100()
    cluster.silence("h100")
    await cluster.settle()
    assert migrations(cluster) == [], "the first placement is no migration, and neither is waiting"
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    return cluster


async def test_a_fallback_event_has_both_pools_and_the_cause() -> None:
    cluster = await fallen_back()
    ((reason, note),) = migrations(cluster)
    assert reason == "FellBack"
    assert note.startswith("from pool h100 to pool amd-mi300x: ")
    assert "it had replicas on nodes that do not answer" in note


async def test_a_migration_is_recorded_once() -> None:
    cluster = await fallen_back()
    cluster.silence("mi300x")
    await cluster.settle()
    cluster.start_operator()
    await cluster.settle()
    cluster.silence("mi300x", heard=True)
    await cluster.settle()
    assert cluster.conditions()["Ready"][0] == "True"
    assert len(migrations(cluster)) == 1


async def test_the_return_of_a_vanished_pool_is_no_migration() -> None:
    cluster = await fallen_back()
    cluster.leave("mi300x")
    await cluster.settle()
    cluster.join(**MI300X)
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert len(migrations(cluster)) == 1


def test_a_running_migration_is_not_recorded_again_when_its_target_had_vanished() -> None:
    old, new = placement("h100-sxm-80gb"), placement("mi300x", reason="FellBack")
    after = status(placements=[new, old], candidates=[chosen("mi300x")])
    while_vanished = status(placements=[old, new], candidates=[chosen("l40s")]).to_dict()
    assert find_migration(while_vanished, after) is None
    before = status(placements=[old], candidates=[chosen("l40s")]).to_dict()
    assert find_migration(before, after) == ReplicaEvent(
        "FellBack", "from pool h100-sxm-80gb to pool mi300x: "
    )


def chosen(pool: str) -> dict[str, str]:
    return {"pool": pool, "verdict": "Chosen", "reason": "LowestCost", "message": ""}


async def test_a_migration_by_a_change_of_the_spec_is_recorded_too() -> None:
    cluster = Cluster(ONE_H100, L40S)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.apply("llama", spec_of(placement={"accelerators": ["l40s"]}))
    await cluster.settle()
    ((reason, note),) = migrations(cluster)
    assert reason == "Moved"
    assert note.startswith("from pool h100 to pool nvidia-l40s: ")


async def test_a_change_on_the_same_pool_is_no_migration() -> None:
    cluster = await on_h100()
    cluster.apply("llama", spec_of(workload={"maxModelLen": 4096}))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert migrations(cluster) == []
