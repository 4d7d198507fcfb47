"""A pool's nodes: counted eagerly, listed at the first read."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from tonnage.fit.model import Footprint
from tonnage.fleet.occupancy import Waiting
from tonnage.fleet.pool_nodes import PoolNode, PoolNodes
from tonnage.fleet.resources import Resources

NODES = [
    PoolNode("b", 8, 8, 5, None),
    PoolNode("a", 8, 8, 8, None),
    PoolNode("c", 8, 0, 0, "cordoned"),
    PoolNode("d", 4, 4, 0, None),
]


def test_nodes_are_counted() -> None:
    counts = PoolNodes.of(NODES).counts
    assert (counts.nodes, counts.usable) == (4, 3)
    assert (counts.total, counts.allocatable, counts.free) == (28, 20, 13)
    assert (counts.largest_node, counts.largest_free_block) == (8, 8)
    assert counts.blocks == ((5, 1), (8, 1))
    nodes = PoolNodes.of(NODES)
    assert [nodes.replica_capacity(Footprint(gpus)) for gpus in (1, 2, 4, 8)] == [13, 6, 3, 1]


def test_nodes_are_sorted_by_name() -> None:
    nodes = PoolNodes.of(NODES)
    assert [node.name for node in nodes] == ["a", "b", "c", "d"]
    assert nodes[0].name == "a"
    assert [node.name for node in nodes[1:3]] == ["b", "c"]
    assert [node.name for node in nodes.unusable()] == ["c"]


def test_reading_counts_does_not_list_the_nodes() -> None:
    def never() -> Iterator[PoolNode]:
        raise AssertionError("listed")

    nodes = PoolNodes(PoolNodes.of(NODES[:2]).counts, never)
    assert len(nodes) == 2
    assert nodes
    assert nodes.counts.free == 13
    assert not nodes.unusable()


def test_they_are_listed_once() -> None:
    calls = []

    def listing() -> list[PoolNode]:
        calls.append(1)
        return NODES[:2]

    nodes = PoolNodes(PoolNodes.of(NODES[:2]).counts, listing)
    assert list(nodes) == list(nodes)
    assert calls == [1]


def test_equal_nodes_are_equal_in_any_order() -> None:
    nodes = PoolNodes.of(NODES)
    assert nodes == PoolNodes.of(reversed(NODES))
    assert nodes != PoolNodes.of(NODES[:3])
    assert nodes != list(nodes)


def test_packed_replicas_reduce_counts_and_list() -> None:
    left = PoolNodes.of(NODES).less([(Footprint(4), 2)])
    assert left.counts.blocks == ((1, 1), (4, 1))
    assert {node.name: node.free for node in left} == {"a": 4, "b": 1, "c": 0, "d": 0}
    assert left == PoolNodes.of(left)


SMALL = Resources(6000, 2**40, 2**40)
UNEQUAL = [
    PoolNode("large", 8, 8, 8, None, spare=Resources(64_000, 2**40, 2**40)),
    PoolNode("small", 8, 8, 8, None, spare=SMALL, size=SMALL),
    PoolNode("shut", 8, 0, 8, "cordoned"),
]


@pytest.mark.parametrize(
    ("gpus", "cpu", "want"),
    [(1, 0, 16), (1, 500, 16), (1, 1000, 14), (2, 4000, 5), (8, 7000, 1), (8, 65_000, 0)],
)
def test_nodes_without_the_cpu_of_a_replica_do_not_count(gpus: int, cpu: int, want: int) -> None:
    assert PoolNodes.of(UNEQUAL).replica_capacity(Footprint(gpus), Resources(cpu)) == want


def test_nodes_are_only_listed_for_replicas_that_request_much() -> None:
    def never() -> Iterator[PoolNode]:
        raise AssertionError("listed")

    nodes = PoolNodes(PoolNodes.of(UNEQUAL).counts, never)
    assert nodes.replica_capacity(Footprint(8), Resources(4000)) == 2
    with pytest.raises(AssertionError, match="listed"):
        nodes.replica_capacity(Footprint(8), Resources(5000))


def test_a_node_to_come_has_as_much_as_the_largest_one() -> None:
    counts = PoolNodes.of([replace(UNEQUAL[1], size=SMALL)], ((8, 2),)).counts
    assert counts.count_pods_to_come(Footprint(1), Resources(1500)) == {4: 2}
    assert counts.count_pods_to_come(Footprint(1), Resources(6001)) == {0: 2}
    of_no_node = PoolNodes.of([], ((8, 2),)).counts
    assert of_no_node.count_pods_to_come(Footprint(1), Resources(6001)) == {8: 2}


@pytest.mark.parametrize(
    ("existing", "to_come", "waiting", "want_now", "want_later"),
    [
        (1, 1, [(Footprint(8, 2), 1)], 0, 0),
        (1, 2, [(Footprint(8, 2), 1)], 0, 1),
        (1, 3, [(Footprint(8, 2), 2)], 0, 0),
        (1, 1, [(Footprint(8, 3), 1)], 1, 1),  # it waits for a node that never comes
        (1, 3, [(Footprint(8, 2), 1), (Footprint(8), 1)], 0, 1),
        (1, 3, [(Footprint(8, 4), 1), (Footprint(8, 2), 1)], 0, 0),
        (2, 3, [(Footprint(8, 2), 2)], 0, 1),
        (1, 1, [(Footprint(8), 1)], 0, 1),
    ],
)
def test_a_replica_takes_nodes_that_exist_and_nodes_to_come(
    existing: int, to_come: int, waiting: Waiting, want_now: int, want_later: int
) -> None:
    nodes = [PoolNode(f"n{index}", 8, 8, 8, None) for index in range(existing)]
    left = PoolNodes.of(nodes, ((8, to_come),)).less(waiting)
    free = left.replica_capacity(Footprint(8))
    assert (free, left.capacity_after_growth(Footprint(8))) == (want_now, want_now + want_later)
    assert sum(node.free == 8 for node in left) == free
