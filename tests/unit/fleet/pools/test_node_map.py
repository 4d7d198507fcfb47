"""Nodes by name, and snapshots of them."""

from random import Random

import pytest

from tonnage.fleet.pools.node_map import NodeMap


def map_of(nodes: dict[str, int]) -> NodeMap[int]:
    made: NodeMap[int] = NodeMap()
    for name, node in nodes.items():
        made.put(name, node)
    return made


def test_a_map_is_like_a_dict_after_any_changes() -> None:
    random, nodes, expected = Random(1), map_of({}), dict[str, int]()
    for node in range(2_000):
        name = f"node-{random.randrange(300)}"
        if name in expected and random.random() < 0.4:
            assert nodes.remove(name) == expected.pop(name)
        else:
            nodes.put(name, node)
            expected[name] = node
        assert (len(nodes), nodes.get(name)) == (len(expected), expected.get(name))
    assert nodes == expected
    assert sorted(nodes) == sorted(expected)
    assert dict(nodes.items()) == expected


def test_later_changes_do_not_change_a_snapshot() -> None:
    before = {f"node-{number}": number for number in range(500)}
    nodes = map_of(before)
    snapshot = nodes.snapshot()
    nodes.put("node-7", -1)
    nodes.put("new", -1)
    nodes.remove("node-8")
    assert (snapshot, len(snapshot)) == (before, 500)
    assert nodes == {**{k: v for k, v in before.items() if k != "node-8"}, "node-7": -1, "new": -1}


def test_the_order_is_the_same_in_every_process() -> None:
    names = [f"node-{number}" for number in range(200)]
    assert list(map_of(dict.fromkeys(names, 0)))[:3] == ["node-160", "node-195", "node-14"]


def test_a_node_that_is_not_there_cannot_be_removed() -> None:
    with pytest.raises(KeyError, match="gone"):
        map_of({"node": 1}).remove("gone")
