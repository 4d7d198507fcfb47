"""Replicas that request more CPU, memory or storage than each node has for its free GPUs."""

import pytest

from tests.support.fleets.gpu_nodes import nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.devices.recognize import Recogniser
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.node_class import Classifier
from tonnage.fleet.occupancy import Waiting, count_replicas
from tonnage.fleet.pools.capacity import CapacityCounter, Demands
from tonnage.fleet.pools.group import Member
from tonnage.fleet.resources import Resources

WHOLE = Classifier(Recogniser(load_catalog()), ()).classify(read_node(nvidia_node("a")))
LARGE, SMALL = Resources(96_000, 2**40, 2**40), Resources(8000, 2**40, 2**40)
MEMBERS = {
    "large": Member(WHOLE, None, 0, size=LARGE),
    "small": Member(WHOLE, None, 0, size=SMALL),
    "shut": Member(WHOLE, "cordoned", 0, size=LARGE),
    "full": Member(WHOLE, None, 8, size=LARGE),
}


@pytest.mark.parametrize(
    ("waiting", "want"),
    [
        ((), 8 + 2),
        ([(Footprint(4), 1)], 4 + 2),
        ([(Footprint(8), 1)], 0 + 2),
        ([(Footprint(8), 1), (Footprint(4), 1)], 0 + 2),
        ([(Footprint(8), 2)], 0),
        ([(Footprint(8), 5)], 0),
        ([(Footprint(8), 1), (Footprint(1), 7)], 0 + 1),
    ],
)
def test_waiting_replicas_are_packed_onto_nodes_with_enough_first(
    waiting: Waiting, want: int
) -> None:
    counter = CapacityCounter(MEMBERS, {WHOLE: None}, Demands(waiting))
    assert count_replicas(counter.count(Footprint(1), Resources(4000)), 1) == want


def test_nodes_that_no_replica_tolerates_are_no_capacity() -> None:
    counter = CapacityCounter(MEMBERS, {WHOLE: "a taint is not tolerated"}, Demands())
    assert count_replicas(counter.count(Footprint(1), Resources(4000)), 1) == 0


def test_what_excluded_pods_hold_is_free() -> None:
    used = Member(WHOLE, None, 8, size=LARGE, requested=Resources(90_000))
    demands = Demands(excluded_gpus={"n": 6}, excluded_others={"n": Resources(60_000)})
    counter = CapacityCounter({"n": used}, {WHOLE: None}, demands)
    assert count_replicas(counter.count(Footprint(1), Resources(12_000)), 1) == 5
    assert count_replicas(counter.count(Footprint(2), Resources(12_000)), 1) == 3
