"""Who may have lost GPUs when a node goes, or is less than it was; and who has not."""

import pytest

from tests.support.gpu_nodes import H100, Raw, amd_node, nvidia_labels, nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Reservation
from tonnage.fleet.node import read_node

CATALOG = load_catalog()
H100_POOL, MI300X_POOL = "nvidia-h100-sxm-80gb", "amd-mi300x"
HERE, BESIDE, AWAITED, ELSEWHERE = (("chat", name) for name in ("here", "beside", "awaited", "far"))


@pytest.fixture
def fleet() -> Fleet:
    """Two nodes of one pool and one of another. On each runs somebody; one has yet to start."""
    found = Fleet(CATALOG)
    for node in (nvidia_node("a"), nvidia_node("b"), amd_node("m")):
        found.put_node(read_node(node))
    for owner, node, pool in (
        (HERE, "a", H100_POOL),
        (BESIDE, "b", H100_POOL),
        (AWAITED, None, H100_POOL),
        (ELSEWHERE, "m", MI300X_POOL),
    ):
        resource = "amd.com/gpu" if node == "m" else "nvidia.com/gpu"
        found.put_pod(GpuPod(owner[1], node, {resource: 2}, owner, "p"))
        found.reserve(owner, [Reservation(owner, "p", pool, 2, 1)])
    found.pools()
    return found


def changed(**change: object) -> Raw:
    node = nvidia_node("a")
    node["spec"] = change.get("spec", node["spec"])
    node["status"] = {**node["status"], **change.get("status", {})}  # type: ignore[dict-item] # a Mapping
    return node


UNREADY = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
LOSSES: dict[str, Raw] = {
    "cordoned": changed(spec={"unschedulable": True}),
    "silent": changed(status=UNREADY),
    "tainted": changed(spec={"taints": [{"key": "team", "value": "x", "effect": "NoSchedule"}]}),
    "fewer GPUs": changed(status={"allocatable": {"nvidia.com/gpu": "7"}}),
    "of another pool": nvidia_node("a", nvidia_labels("NVIDIA-L40S", 46068)),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_node_that_is_less_is_told_to_its_replicas_and_to_those_who_come(
    fleet: Fleet, name: str
) -> None:
    assert fleet.put_node(read_node(LOSSES[name])) == {HERE, AWAITED}


def test_a_node_that_is_gone_is_told_to_its_replicas_and_to_those_who_come(fleet: Fleet) -> None:
    assert fleet.remove_node("a") == {HERE, AWAITED}
    fleet.pools()  # and is missed by now: who ran there is to come, too
    assert fleet.remove_node("b") == {HERE, BESIDE, AWAITED}


def test_the_last_node_of_a_pool_takes_the_pool_with_it(fleet: Fleet) -> None:
    fleet.remove_pod("far")
    assert fleet.remove_node("m") == {ELSEWHERE}


@pytest.mark.parametrize("name", ["cordoned", "silent"])
def test_a_node_that_comes_back_is_told_to_nobody(fleet: Fleet, name: str) -> None:
    fleet.put_node(read_node(LOSSES[name]))
    assert fleet.put_node(read_node(nvidia_node("a"))) == set()
    assert fleet.put_node(read_node(nvidia_node("c"))) == set()


def test_a_label_that_nobody_looks_at_is_told_to_nobody(fleet: Fleet) -> None:
    node = nvidia_node("a", H100 | {"example.com/rack": "7"})
    assert fleet.put_node(read_node(node)) == set()


def test_a_cordoned_node_whose_kubelet_falls_silent_is_told(fleet: Fleet) -> None:
    fleet.put_node(read_node(LOSSES["cordoned"]))
    both = changed(spec={"unschedulable": True}, status=UNREADY)
    assert HERE in fleet.put_node(read_node(both))


def test_who_has_reserved_just_now_and_is_not_counted_yet_is_told(fleet: Fleet) -> None:
    newest = ("chat", "newest")
    fleet.reserve(newest, [Reservation(newest, "p", H100_POOL, 2, 1)])
    assert fleet.remove_node("a") == {HERE, AWAITED, newest}
