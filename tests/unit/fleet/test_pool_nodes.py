"""A pool's nodes: counted eagerly, listed at the first read."""

from collections.abc import Iterator

from tonnage.fleet.pool_nodes import PoolNode, PoolNodes

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
    assert [counts.replica_capacity(gpus) for gpus in (1, 2, 4, 8)] == [13, 6, 3, 1]


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
    left = PoolNodes.of(NODES).less([(4, 2)])
    assert left.counts.blocks == ((1, 1), (4, 1))
    assert {node.name: node.free for node in left} == {"a": 4, "b": 1, "c": 0, "d": 0}
    assert left == PoolNodes.of(left)
