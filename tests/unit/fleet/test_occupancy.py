"""Unscheduled replicas, packed onto counted nodes and onto named nodes."""

from collections import Counter

import pytest

from tonnage.fit.model import Footprint
from tonnage.fleet.occupancy import Successor, Waiting, count_replicas, pack, pack_nodes

CASES: dict[str, tuple[dict[int, int], Waiting, dict[int, int]]] = {
    "nothing waits": ({8: 2}, [], {8: 2}),
    "the smallest block that is enough": ({8: 1, 3: 1}, [(Footprint(2), 1)], {8: 1, 1: 1}),
    "one node is filled before the next": ({8: 2}, [(Footprint(4), 3)], {4: 1, 0: 1}),
    "a larger block only when no smaller one is left": (
        {8: 1, 4: 1},
        [(Footprint(3), 3)],
        {2: 1, 1: 1},
    ),
    "a replica that fits no block takes none": ({2: 2}, [(Footprint(4), 1)], {2: 2}),
    "the largest first": ({8: 1, 4: 1}, [(Footprint(8), 1), (Footprint(4), 1)], {0: 2}),
    "more than exist": ({8: 1}, [(Footprint(1), 10**12)], {0: 1}),
    "a replica on two nodes takes both at once": ({8: 3}, [(Footprint(8, 2), 2)], {0: 2, 8: 1}),
    "or none": ({8: 1, 4: 3}, [(Footprint(8, 2), 1)], {8: 1, 4: 3}),
    "on several nodes after larger ones": (
        {8: 2, 4: 1},
        [(Footprint(8), 1), (Footprint(4, 2), 1)],
        {0: 2, 4: 1},
    ),
    "on the nodes with the most of its pods, so that both have a place": (
        {4: 2, 8: 1},
        [(Footprint(4, 2), 2)],
        {0: 3},
    ),
    "no node": ({}, [(Footprint(1), 5)], {}),
}


@pytest.mark.parametrize(("blocks", "waiting", "want"), CASES.values(), ids=CASES.keys())
def test_packing(blocks: dict[int, int], waiting: Waiting, want: dict[int, int]) -> None:
    assert pack(blocks, waiting).left == want


@pytest.mark.parametrize(("blocks", "waiting", "want"), CASES.values(), ids=CASES.keys())
def test_packing_by_name_gives_the_same_counts(
    blocks: dict[int, int], waiting: Waiting, want: dict[int, int]
) -> None:
    free = {f"n{size}-{n}": size for size, nodes in blocks.items() for n in range(nodes)}
    assert Counter(pack_nodes(free, waiting).left.values()) == want


def test_equal_blocks_are_taken_by_name() -> None:
    assert pack_nodes({"b": 8, "a": 8, "c": 8}, [(Footprint(8), 1)]).left == {
        "a": 0,
        "b": 8,
        "c": 8,
    }


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
    packed = pack_nodes(free, (), [Successor(Footprint(gpus), replicas, superseded_gpus)])
    assert (packed.left, packed.unplaced) == (want, [])


def test_no_other_replica_takes_the_gpus_of_a_predecessor() -> None:
    packed = pack_nodes({"a": 0}, [(Footprint(4), 1)], [Successor(Footprint(2), 1, {"a": 4})])
    assert (packed.left, packed.unplaced) == ({"a": 0}, [(Footprint(4), 1)])


def test_a_larger_replica_is_packed_before_a_successor() -> None:
    packed = pack_nodes({"a": 4}, [(Footprint(4), 1)], [Successor(Footprint(2), 1, {})])
    assert (packed.left, packed.unplaced) == ({"a": 0}, [(Footprint(2), 1)])


def test_a_successor_on_two_nodes_takes_what_its_predecessors_hold() -> None:
    successor = Successor(Footprint(8, 2), 1, {"a": 8, "b": 4})
    packed = pack_nodes({"a": 0, "b": 4, "c": 8}, (), [successor])
    assert (packed.left, packed.unplaced) == ({"a": 0, "b": 0, "c": 8}, [])


def test_a_successor_on_two_nodes_stays_in_the_domain_of_its_predecessors() -> None:
    free, domains = (
        {"x0": 8, "x1": 8, "y0": 0, "y1": 0},
        {"x0": "x", "x1": "x", "y0": "y", "y1": "y"},
    )
    successor = Successor(Footprint(8, 2), 1, {"y0": 8, "y1": 8})
    packed = pack_nodes(free, (), [successor], domains)
    assert (packed.left, packed.unplaced) == (free, [])


def test_a_successor_that_lacks_a_node_leaves_what_its_predecessors_hold() -> None:
    successors = [Successor(Footprint(8, 2), 1, {"a": 8}), Successor(Footprint(8), 1, {"a": 8})]
    packed = pack_nodes({"a": 0, "b": 4}, (), successors)
    assert (packed.left, packed.unplaced) == ({"a": 0, "b": 4}, [(Footprint(8, 2), 1)])


@pytest.mark.parametrize(
    ("pods", "nodes", "want"),
    [
        ({1: 5}, 1, 5),
        ({1: 5}, 2, 2),
        ({1: 2, 2: 1}, 2, 2),
        ({9: 1, 1: 1}, 2, 1),
        ({0: 7}, 2, 0),
        ({3: 3}, 3, 3),
        ({3: 1}, 2, 0),
    ],
)
def test_the_pods_of_a_replica_are_on_different_nodes(
    pods: dict[int, int], nodes: int, want: int
) -> None:
    assert count_replicas(pods, nodes) == want
