"""A pool's nodes: counted eagerly, listed at the first read."""

from collections.abc import Iterator

from tonnage.fleet.pool_nodes import PoolNode, PoolNodes
from tonnage.fleet.resources import AMPLE, Resources

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
    assert [(free.gpus, nodes) for free, nodes in counts.blocks] == [(5, 1), (8, 1)]
    sizes = map(Resources, (1, 2, 4, 8))
    assert [counts.replica_capacity(requests) for requests in sizes] == [13, 6, 3, 1]


GIB = 1024**3


def test_memory_bounds_the_replicas() -> None:
    sizes = {"a": 40 * GIB, "b": 1024 * GIB, "c": 2048 * GIB}
    nodes = PoolNodes.of(
        PoolNode(name, 8, 8, 8, None, Resources(0, 10**6, size), Resources(0, 10**6, size))
        for name, size in sizes.items()
    )
    assert len(nodes.counts.blocks) == 2, "nodes with ample memory are counted together"
    assert nodes.replica_capacity(Resources(1, 0, 16 * GIB)) == 2 + 8 + 8
    assert nodes.replica_capacity(Resources(1, 0, AMPLE.memory)) == 8 + 8
    assert nodes.replica_capacity(Resources(1, 0, 512 * GIB)) == 2 + 4, "by the list"
    left = nodes.less([(Resources(1, 0, 512 * GIB), 3)])
    assert left.replica_capacity(Resources(1, 0, 512 * GIB)) == 3
    assert left == PoolNodes.of(left)


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
    left = PoolNodes.of(NODES).less([(Resources(4), 2)])
    assert [(free.gpus, nodes) for free, nodes in left.counts.blocks] == [(1, 1), (4, 1)]
    assert {node.name: node.free for node in left} == {"a": 4, "b": 1, "c": 0, "d": 0}
    assert left == PoolNodes.of(left)
