"""Which owners may have lost GPUs when a node is removed or loses capacity, and which have not."""

import pytest

from tests.support.fleets.gpu_nodes import H100, Raw, amd_node, nvidia_labels, nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import GpuPod, Reservation
from tonnage.fleet.nodes.node import read_node

CATALOG = load_catalog()
H100_POOL, MI300X_POOL = "nvidia-h100-sxm-80gb", "amd-mi300x"
HERE, SAME_POOL, AWAITED, ELSEWHERE = (
    ("chat", name) for name in ("here", "same-pool", "awaited", "far")
)


@pytest.fixture
def fleet() -> Fleet:
    """Two nodes of one pool and one of another. Each runs a replica; one replica is unscheduled."""
    fleet = Fleet(CATALOG)
    for node in (nvidia_node("a"), nvidia_node("b"), amd_node("m")):
        fleet.put_node(read_node(node))
    for owner, node, pool in (
        (HERE, "a", H100_POOL),
        (SAME_POOL, "b", H100_POOL),
        (AWAITED, None, H100_POOL),
        (ELSEWHERE, "m", MI300X_POOL),
    ):
        resource = "amd.com/gpu" if node == "m" else "nvidia.com/gpu"
        fleet.put_pod(GpuPod(owner[1], node, {resource: 2}, owner, "p"))
        fleet.reserve(owner, [Reservation(owner, "p", pool, Footprint(2), 1)])
    fleet.pools()
    return fleet


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
def test_lost_capacity_concerns_replicas_on_the_node_and_unscheduled_ones(
    fleet: Fleet, name: str
) -> None:
    assert fleet.put_node(read_node(LOSSES[name])) == {HERE, AWAITED}


def test_a_removed_node_concerns_its_replicas_and_unscheduled_ones(fleet: Fleet) -> None:
    assert fleet.remove_node("a") == {HERE, AWAITED}
    fleet.pools()  # counts the replica that ran there as unscheduled, too
    assert fleet.remove_node("b") == {HERE, SAME_POOL, AWAITED}


def test_the_last_node_of_a_pool_takes_the_pool_with_it(fleet: Fleet) -> None:
    fleet.remove_pod("far")
    assert fleet.remove_node("m") == {ELSEWHERE}


@pytest.mark.parametrize("name", ["cordoned", "silent"])
def test_a_node_that_recovers_concerns_no_owner(fleet: Fleet, name: str) -> None:
    fleet.put_node(read_node(LOSSES[name]))
    assert fleet.put_node(read_node(nvidia_node("a"))) == set()
    assert fleet.put_node(read_node(nvidia_node("c"))) == set()


def test_an_irrelevant_label_concerns_no_owner(fleet: Fleet) -> None:
    node = nvidia_node("a", H100 | {"example.com/rack": "7"})
    assert fleet.put_node(read_node(node)) == set()


def test_a_cordoned_node_that_becomes_silent_concerns_its_replicas(fleet: Fleet) -> None:
    fleet.put_node(read_node(LOSSES["cordoned"]))
    both = changed(spec={"unschedulable": True}, status=UNREADY)
    assert HERE in fleet.put_node(read_node(both))


def test_a_reservation_that_is_not_counted_yet_is_concerned(fleet: Fleet) -> None:
    newest = ("chat", "newest")
    fleet.reserve(newest, [Reservation(newest, "p", H100_POOL, Footprint(2), 1)])
    assert fleet.remove_node("a") == {HERE, AWAITED, newest}
