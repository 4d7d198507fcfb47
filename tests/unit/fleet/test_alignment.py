"""Free GPUs of aligned pools: pods start only where one NUMA node or PCIe root has enough."""

from tests.support.fleets.dra_objects import MI300X, claim, dra_node, gpu_slice
from tonnage.api.pool import AcceleratorPoolSpec, Allocation, DeviceAlignment
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.alignment import Alignment, take
from tonnage.fleet.dra.read import read_claim, read_slice
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.resources import Resources

NUMA = Alignment("numaNode", 4)
AMD = "gpu.amd.com"
OWNER = ("chat", "llama")


def fleet_of(*nodes, alignment=DeviceAlignment.NUMA_NODE, **spec):
    """A declared pool of nodes with 8 MI300X each, four on each of two NUMA nodes."""
    fleet = Fleet(load_catalog())
    spec = {"nodeSelector": {"pool": "p"}, "deviceAlignment": alignment, **spec}
    fleet.declare(DeclaredPool("p", {}, AcceleratorPoolSpec.model_validate(spec)))
    for name in nodes:
        fleet.put_node(read_node(dra_node(name, {"pool": "p"})))
        fleet.put_slice(read_slice(gpu_slice(name, MI300X)))
    return fleet


def hold(fleet, node, *indexes, pod=None):
    """A claim holds these devices; of a pod of OWNER, or of another workload."""
    devices = [f"gpu-{index}-{128 + index}" for index in indexes]
    uid = pod or f"other-{node}-{indexes}"
    body = claim(f"claim-{uid}", node, devices, driver=AMD, pods=[uid])
    fleet.put_claim(read_claim(body))
    fleet.put_pod(GpuPod(uid, node, {}, owner=OWNER if pod else None, placement="x"))


def capacity(fleet, gpus, nodes=1, others=None, excluding=None):
    (pool,) = fleet.pools(excluding)
    args = [others] if others else []
    return pool.replica_capacity(Footprint(gpus, nodes), *args)


def test_free_gpus_that_are_split_hold_no_aligned_pod():
    fleet = fleet_of("a")
    hold(fleet, "a", 0, 4)
    (pool,) = fleet.pools()
    assert pool.free == 6
    assert [capacity(fleet, gpus) for gpus in (1, 2, 3, 4)] == [6, 2, 2, 0]


def test_pods_that_no_numa_node_can_hold_are_not_aligned():
    fleet = fleet_of("a")
    assert capacity(fleet, 8) == 1
    hold(fleet, "a", 0)
    assert [capacity(fleet, gpus) for gpus in (8, 7)] == [0, 1]


def test_a_pool_that_aligns_nothing_counts_all_free_gpus():
    for fleet in (
        fleet_of("a", alignment=None),
        fleet_of("a", allocation=Allocation.EXTENDED_RESOURCE),
        fleet_of("a", alignment=DeviceAlignment.PCIE_ROOT),  # a root has one GPU each
    ):
        hold(fleet, "a", 0, 4)
        assert capacity(fleet, 4) == 1


def test_a_change_of_the_alignment_counts_again():
    fleet = fleet_of("a", alignment=None)
    hold(fleet, "a", 0, 4)
    assert capacity(fleet, 4) == 1
    spec = {"nodeSelector": {"pool": "p"}, "deviceAlignment": DeviceAlignment.NUMA_NODE}
    fleet.declare(DeclaredPool("p", {}, AcceleratorPoolSpec.model_validate(spec)))
    assert capacity(fleet, 4) == 0


def test_what_the_object_itself_holds_is_free_for_its_next_plan():
    fleet = fleet_of("a")
    hold(fleet, "a", 0, 4, pod="own")
    assert (capacity(fleet, 4), capacity(fleet, 4, excluding=OWNER)) == (0, 2)
    hold(fleet, "a", 1)
    assert capacity(fleet, 4, excluding=OWNER) == 1


def test_reserved_replicas_are_assumed_in_one_part_each():
    fleet = fleet_of("a")
    fleet.reserve(("chat", "other"), [Reservation(("chat", "other"), "x", "p", Footprint(3), 1)])
    assert [capacity(fleet, gpus) for gpus in (1, 2, 4)] == [5, 2, 1]


def test_groups_over_several_nodes_have_aligned_pods_too():
    fleet = fleet_of("a", "b", "c")
    hold(fleet, "b", 0, 4)
    assert capacity(fleet, 4, nodes=2) == 2
    hold(fleet, "c", 0, 4)
    assert capacity(fleet, 4, nodes=2) == 0


def test_pods_that_request_much_else_are_counted_node_by_node():
    fleet = fleet_of("a", "b")
    hold(fleet, "a", 0, 4)
    much = Resources(150_000, 2**40, 0)
    assert capacity(fleet, 4, others=much) == 1


def test_nodes_of_the_list_know_what_is_left_of_their_parts():
    fleet = fleet_of("a", "b")
    hold(fleet, "a", 0, 4)
    (pool,) = fleet.pools()
    limited = pool.nodes.limited_to(lambda name: "no" if name == "b" else None)
    assert limited.replica_capacity(Footprint(4)) == 0
    assert limited.replica_capacity(Footprint(3)) == 2
    assert pool.nodes.less([(Footprint(4), 1)]).replica_capacity(Footprint(4)) == 1


def test_nodes_to_come_have_whole_parts():
    fleet = fleet_of("a", maxNodes=3)
    (pool,) = fleet.pools()
    assert pool.capacity_after_growth(Footprint(3)) == 6
    assert pool.capacity_after_growth(Footprint(8)) == 3


def test_gpus_are_taken_of_the_smallest_part_that_is_enough():
    assert take((2, 3, 4), 3) == (2, 4)
    assert take((2, 3, 4), 1) == (1, 3, 4)
    assert take((2, 3, 4), 6) == (3,)
    assert take((2,), 0) == (2,)
    assert NUMA.pods_on_empty(8, Footprint(3)) == 2
