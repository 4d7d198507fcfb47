"""What an aligned pool promises can be allocated: whatever is held, reserved and released."""

from itertools import count
from random import Random

import pytest

from tests.support.fleets.dra_objects import MI300X, claim, dra_node, gpu_slice
from tonnage.api.pool import AcceleratorPoolSpec, DeviceAlignment
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.dra.read import read_claim, read_slice
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Reservation
from tonnage.fleet.nodes.node import read_node

CATALOG = load_catalog()
NODES = ("a", "b", "c")
PARTS = ((0, 1, 2, 3), (4, 5, 6, 7))
OWNER = ("chat", "waiting")
SPEC = {"nodeSelector": {"pool": "p"}, "deviceAlignment": DeviceAlignment.NUMA_NODE}


class Truth:
    """The devices that are free, next to the fleet. A device is its index on its node."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.fleet = Fleet(CATALOG)
        self.fleet.declare(DeclaredPool("p", {}, AcceleratorPoolSpec.model_validate(SPEC)))
        self.free = {node: set(range(8)) for node in NODES}
        self.claims: dict[str, tuple[str, list[int]]] = {}
        self.numbers = count()
        for node in NODES:
            node_body = read_node(dra_node(node, {"pool": "p"}))
            slice_body = read_slice(gpu_slice(node, MI300X))
            assert slice_body is not None
            self.fleet.put_node(node_body)
            self.fleet.put_slice(slice_body)

    def parts(self, gpus: int) -> list[tuple[str, list[int]]]:
        """Free devices of each place where a pod of so many GPUs can be: aligned, or anywhere."""
        if 1 < gpus <= 4:
            places = [(node, set(part)) for node in NODES for part in PARTS]
        else:
            places = [(node, set(range(8))) for node in NODES]
        return [(node, sorted(self.free[node] & part)) for node, part in places]

    def capacity(self, gpus: int) -> int:
        return sum(len(devices) // gpus for _, devices in self.parts(gpus))

    def allocate(self, gpus: int) -> bool:
        """The scheduler places a pod wherever it can."""
        places = [place for place in self.parts(gpus) if len(place[1]) >= gpus]
        if not places:
            return False
        node, devices = self.random.choice(places)
        held = self.random.sample(devices, gpus)
        self.free[node] -= set(held)
        uid = f"pod-{next(self.numbers)}"
        self.claims[uid] = node, held
        names = [f"gpu-{index}-{128 + index}" for index in held]
        body = read_claim(claim(uid, node, names, driver="gpu.amd.com", pods=[uid]))
        assert body is not None
        self.fleet.put_claim(body)
        self.fleet.put_pod(GpuPod(uid, node, {}))
        return True

    def release(self) -> None:
        if self.claims:
            uid = self.random.choice(sorted(self.claims))
            node, held = self.claims.pop(uid)
            self.free[node] |= set(held)
            self.fleet.remove_claim(f"uid-{uid}")
            self.fleet.remove_pod(uid)

    def promised(self, gpus: int) -> int:
        (pool,) = self.fleet.pools()
        return pool.replica_capacity(Footprint(gpus))


@pytest.mark.parametrize("seed", range(60))
def test_as_many_pods_start_as_the_pool_has_capacity_for(seed: int) -> None:
    truth = Truth(Random(seed))
    for _ in range(25):
        if truth.random.random() < 0.6:
            truth.allocate(truth.random.choice([1, 1, 2, 3, 4, 8]))
        else:
            truth.release()
        for gpus in (1, 2, 3, 4, 8):
            assert truth.promised(gpus) == truth.capacity(gpus)
    gpus = truth.random.choice([2, 3, 4])
    for left in reversed(range(truth.promised(gpus))):
        assert truth.allocate(gpus)
        assert truth.promised(gpus) == left
    assert not truth.allocate(gpus)


@pytest.mark.parametrize("seed", range(40))
def test_reserved_replicas_take_as_much_capacity_as_they_will(seed: int) -> None:
    truth = Truth(Random(seed))
    for _ in range(truth.random.randint(0, 12)):
        truth.allocate(truth.random.choice([1, 1, 2, 3]))
    gpus = truth.random.choice([2, 3, 4])
    capacity = truth.capacity(gpus)
    reserved = truth.random.randint(0, capacity + 1)
    truth.fleet.reserve(OWNER, [Reservation(OWNER, "x", "p", Footprint(gpus), reserved)])
    assert truth.promised(gpus) == max(0, capacity - reserved)
