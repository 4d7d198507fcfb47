"""A pool's nodes: counted at once, listed when somebody reads them."""

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
    assert [counts.room_for(gpus) for gpus in (1, 2, 4, 8)] == [13, 6, 3, 1]


def test_nodes_are_by_name() -> None:
    nodes = PoolNodes.of(NODES)
    assert [node.name for node in nodes] == ["a", "b", "c", "d"]
    assert nodes[0].name == "a"
    assert [node.name for node in nodes[1:3]] == ["b", "c"]
    assert [node.name for node in nodes.unusable()] == ["c"]


def test_nobody_lists_the_nodes_of_a_pool_that_is_only_counted() -> None:
    def never() -> Iterator[PoolNode]:
        raise AssertionError("listed")

    nodes = PoolNodes(PoolNodes.of(NODES[:2]).counts, never)
    assert len(nodes) == 2
    assert nodes
    assert nodes.counts.free == 13
    assert not nodes.unusable()


def test_they_are_listed_once() -> None:
    asked = []

    def listing() -> list[PoolNode]:
        asked.append(1)
        return NODES[:2]

    nodes = PoolNodes(PoolNodes.of(NODES[:2]).counts, listing)
    assert list(nodes) == list(nodes)
    assert asked == [1]


def test_equal_nodes_are_equal_however_they_came() -> None:
    nodes = PoolNodes.of(NODES)
    assert nodes == PoolNodes.of(reversed(NODES))
    assert nodes != PoolNodes.of(NODES[:3])
    assert nodes != list(nodes)


def test_what_is_packed_onto_them_is_counted_and_listed_alike() -> None:
    left = PoolNodes.of(NODES).less([(4, 2)])
    assert left.counts.blocks == ((1, 1), (4, 1))
    assert {node.name: node.free for node in left} == {"a": 4, "b": 1, "c": 0, "d": 0}
    assert left == PoolNodes.of(left)
