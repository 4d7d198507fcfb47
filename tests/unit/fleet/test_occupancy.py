"""Unscheduled replicas, packed onto counted nodes and onto named nodes."""

from collections import Counter

import pytest

from tonnage.fleet.occupancy import Successor, Waiting, pack, pack_nodes

CASES: dict[str, tuple[dict[int, int], Waiting, dict[int, int]]] = {
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
def test_packing(blocks: dict[int, int], waiting: Waiting, want: dict[int, int]) -> None:
    assert pack(blocks, waiting).left == want


@pytest.mark.parametrize(("blocks", "waiting", "want"), CASES.values(), ids=CASES.keys())
def test_packing_by_name_gives_the_same_counts(
    blocks: dict[int, int], waiting: Waiting, want: dict[int, int]
) -> None:
    free = {f"n{size}-{n}": size for size, nodes in blocks.items() for n in range(nodes)}
    assert Counter(pack_nodes(free, waiting).left.values()) == want


def test_equal_blocks_are_taken_by_name() -> None:
    assert pack_nodes({"b": 8, "a": 8, "c": 8}, [(8, 1)]).left == {"a": 0, "b": 8, "c": 8}


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
    packed = pack_nodes(free, (), [Successor(gpus, replicas, superseded_gpus)])
    assert (packed.left, packed.unplaced) == (want, [])


def test_no_other_replica_takes_the_gpus_of_a_predecessor() -> None:
    packed = pack_nodes({"a": 0}, [(4, 1)], [Successor(2, 1, {"a": 4})])
    assert (packed.left, packed.unplaced) == ({"a": 0}, [(4, 1)])


def test_a_larger_replica_is_packed_before_a_successor() -> None:
    packed = pack_nodes({"a": 4}, [(4, 1)], [Successor(2, 1, {})])
    assert (packed.left, packed.unplaced) == ({"a": 0}, [(2, 1)])
