"""Unscheduled replicas, packed onto counted nodes and onto named nodes."""

from collections import Counter
from collections.abc import Mapping

import pytest

from tonnage.fleet.occupancy import Successor, Waiting, pack, pack_nodes
from tonnage.fleet.resources import AMPLE, UNKNOWN_SIZE, Resources

Replicas = list[tuple[int, int]]
"""(GPUs of a replica, replicas) pairs."""

CASES: dict[str, tuple[dict[int, int], Replicas, dict[int, int]]] = {
    "nothing waits": ({8: 2}, [], {8: 2}),
    "the smallest block that is enough": ({8: 1, 3: 1}, [(2, 1)], {8: 1, 1: 1}),
    "one node is filled before the next": ({8: 2}, [(4, 3)], {4: 1, 0: 1}),
    "a larger block only when no smaller one is left": ({8: 1, 4: 1}, [(3, 3)], {2: 1, 1: 1}),
    "a replica that fits no block takes none": ({2: 2}, [(4, 1)], {2: 2}),
    "the largest first": ({8: 1, 4: 1}, [(8, 1), (4, 1)], {0: 2}),
    "more than exist": ({8: 1}, [(1, 10**12)], {0: 1}),
    "no node": ({}, [(1, 5)], {}),
}


@pytest.mark.parametrize(("blocks", "waiting", "want"), CASES.values(), ids=CASES.keys())
def test_packing(blocks: dict[int, int], waiting: Replicas, want: dict[int, int]) -> None:
    packed = pack({Resources(free): nodes for free, nodes in blocks.items()}, requests(waiting))
    assert {free.gpus: nodes for free, nodes in packed.left.items()} == want


@pytest.mark.parametrize(("blocks", "waiting", "want"), CASES.values(), ids=CASES.keys())
def test_packing_by_name_gives_the_same_counts(
    blocks: dict[int, int], waiting: Replicas, want: dict[int, int]
) -> None:
    free = {f"n{size}-{n}": size for size, nodes in blocks.items() for n in range(nodes)}
    left = pack_nodes(of_gpus(free), requests(waiting)).left
    assert Counter(each.gpus for each in left.values()) == want


def requests(waiting: Replicas) -> Waiting:
    return [(Resources(gpus), replicas) for gpus, replicas in waiting]


def of_gpus(free: Mapping[str, int]) -> dict[str, Resources]:
    return {name: Resources(gpus) for name, gpus in free.items()}


def test_equal_blocks_are_taken_by_name() -> None:
    left = pack_nodes(of_gpus({"b": 8, "a": 8, "c": 8}), requests([(8, 1)])).left
    assert left == of_gpus({"a": 0, "b": 8, "c": 8})


SUCCESSIONS = {
    "the GPUs of a predecessor": ({"a": 0, "b": 4}, 4, 1, {"a": 4}, {"a": 0, "b": 4}),
    "and additional free GPUs": ({"a": 1, "b": 0}, 4, 1, {"a": 3}, {"a": 0, "b": 0}),
    "as few free ones as possible": ({"a": 4, "b": 4}, 4, 1, {"a": 1, "b": 2}, {"a": 4, "b": 2}),
    "several on one node": ({"a": 1, "b": 8}, 2, 2, {"a": 4}, {"a": 1, "b": 8}),
    "another node where that is too small": ({"a": 0, "b": 8}, 4, 1, {"a": 2}, {"a": 0, "b": 4}),
    "none on an unusable node": ({"b": 8}, 4, 1, {"a": 4}, {"b": 4}),
}


@pytest.mark.parametrize(
    ("free", "gpus", "replicas", "superseded_gpus", "want"),
    SUCCESSIONS.values(),
    ids=SUCCESSIONS.keys(),
)
def test_a_successor_takes(
    free: dict[str, int],
    gpus: int,
    replicas: int,
    superseded_gpus: dict[str, int],
    want: dict[str, int],
) -> None:
    successor = Successor(Resources(gpus), replicas, of_gpus(superseded_gpus))
    packed = pack_nodes(of_gpus(free), (), [successor])
    assert (packed.left, packed.unplaced) == (of_gpus(want), [])


def test_no_other_replica_takes_the_gpus_of_a_predecessor() -> None:
    successor = Successor(Resources(2), 1, of_gpus({"a": 4}))
    packed = pack_nodes(of_gpus({"a": 0}), requests([(4, 1)]), [successor])
    assert (packed.left, packed.unplaced) == (of_gpus({"a": 0}), requests([(4, 1)]))


def test_a_larger_replica_is_packed_before_a_successor() -> None:
    packed = pack_nodes(of_gpus({"a": 4}), requests([(4, 1)]), [Successor(Resources(2), 1, {})])
    assert (packed.left, packed.unplaced) == (of_gpus({"a": 0}), requests([(2, 1)]))


GIB = 1024**3
SMALL, LARGE = Resources(1, 4000, 16 * GIB), Resources(1, 4000, 100 * GIB)
NODE = Resources(8, 64_000, 256 * GIB, 10**12)

OTHERS = {
    "memory ends before the GPUs": (NODE, [(LARGE, 4)], 6, [(LARGE, 2)]),
    "CPU ends before the GPUs": (NODE._replace(cpu=9000), [(SMALL, 3)], 6, [(SMALL, 1)]),
    "the GPUs end first": (NODE, [(SMALL, 9)], 0, [(SMALL, 1)]),
    "nothing is known of the node": (UNKNOWN_SIZE._replace(gpus=8), [(LARGE, 9)], 0, [(LARGE, 1)]),
}


@pytest.mark.parametrize(
    ("node", "waiting", "gpus_left", "unplaced"), OTHERS.values(), ids=OTHERS.keys()
)
def test_cpu_and_memory_are_packed_too(
    node: Resources, waiting: Waiting, gpus_left: int, unplaced: Waiting
) -> None:
    counted = pack({node.bounded(): 1}, waiting)
    named = pack_nodes({"a": node}, waiting)
    assert [free.gpus for free in counted.left] == [named.left["a"].gpus] == [gpus_left]
    assert counted.unplaced == named.unplaced == unplaced


def test_a_replica_beyond_all_bounds_is_packed_by_what_its_node_really_has() -> None:
    huge = Resources(1, 1000, AMPLE.memory * 4)
    assert not huge.is_countable
    packed = pack_nodes({"a": UNKNOWN_SIZE._replace(gpus=8), "b": NODE}, [(huge, 3)])
    assert (packed.left["a"].gpus, packed.left["b"]) == (5, NODE)
