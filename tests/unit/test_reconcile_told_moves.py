"""An event tells each move of pools once: from where, to where and why; and nothing else as one."""

from tests.support.cluster import L40S, MI300X, Cluster, spec_of
from tests.support.pricing import ONE_H100, on_h100, price
from tests.support.statuses import placement, status
from tonnage.reconcile.report import ToldMove, find_move

MINUTE = 60.0


def moves(cluster: Cluster) -> list[tuple[str, str]]:
    """Reason and note of each move that was told."""
    told = zip(cluster.told.events, cluster.told.notes, strict=True)
    return [(reason, note) for (action, reason), note in told if action == "Moving"]


async def fallen_back() -> Cluster:
    cluster = await on_h100()
    cluster.silence("h100")
    await cluster.settle()
    assert moves(cluster) == [], "the first place is no move, and neither is waiting"
    await cluster.wait(10 * MINUTE)
    assert cluster.deployments() == ["llama-mi300x"]
    return cluster


async def test_a_fall_back_is_told_with_from_to_and_why() -> None:
    cluster = await fallen_back()
    ((reason, note),) = moves(cluster)
    assert reason == "FellBack"
    assert note.startswith("from pool h100 to pool amd-mi300x: ")
    assert "it had replicas on nodes that do not answer" in note


async def test_a_move_is_told_once_whatever_comes_after_it() -> None:
    cluster = await fallen_back()
    cluster.silence("mi300x")
    await cluster.settle()
    cluster.start_operator()
    await cluster.settle()
    cluster.silence("mi300x", heard=True)
    await cluster.settle()
    assert cluster.conditions()["Ready"][0] == "True"
    assert len(moves(cluster)) == 1


async def test_a_pool_that_vanished_for_a_while_was_not_moved_to_when_it_is_back() -> None:
    cluster = await fallen_back()
    cluster.leave("mi300x")
    await cluster.settle()
    cluster.join(**MI300X)
    await cluster.settle()
    assert cluster.deployments() == ["llama-mi300x"]
    assert len(moves(cluster)) == 1


def test_a_move_under_way_is_not_told_again_when_its_goal_was_out_of_sight() -> None:
    old, new = placement("h100-sxm-80gb"), placement("mi300x", reason="FellBack")
    after = status(placements=[new, old], candidates=[chosen("mi300x")])
    out_of_sight = status(placements=[old, new], candidates=[chosen("l40s")]).to_dict()
    assert find_move(out_of_sight, after) is None
    before = status(placements=[old], candidates=[chosen("l40s")]).to_dict()
    assert find_move(before, after) == ToldMove(
        "FellBack", "from pool h100-sxm-80gb to pool mi300x: "
    )


def chosen(pool: str) -> dict[str, str]:
    return {"pool": pool, "verdict": "Chosen", "reason": "LowestCost", "message": ""}


async def test_a_move_that_the_users_own_change_brought_about_is_told_too() -> None:
    cluster = Cluster(ONE_H100, L40S)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.apply("llama", spec_of(placement={"accelerators": ["l40s"]}))
    await cluster.settle()
    ((reason, note),) = moves(cluster)
    assert reason == "Moved"
    assert note.startswith("from pool h100 to pool nvidia-l40s: ")


async def test_a_change_that_moves_nobody_is_none() -> None:
    cluster = await on_h100()
    cluster.apply("llama", spec_of(workload={"maxModelLen": 4096}))
    await cluster.settle()
    assert cluster.deployments() == ["llama-h100-sxm-80gb"]
    assert moves(cluster) == []
