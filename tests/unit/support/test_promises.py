"""The independent count of promised GPUs, on which the histories rest."""

from typing import Any

import pytest

from tests.support.faults.promise_book import PromiseBook, find_overcommitted
from tests.support.fleets.promises import Promise, Sight, can_pack, pack_largest_first

A, B = "g-0", "g-1"
BOTH = frozenset({A, B})


def node(name: str, gpus: int = 4, *, cordoned: bool = False) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"unschedulable": cordoned},
        "status": {"allocatable": {"amd.com/gpu": str(gpus), "cpu": "8"}},
    }


def pod(
    name: str, gpus: int, on: str | None = A, owner: str | None = "llama", *, ending: bool = False
) -> dict[str, Any]:
    labels = {"tonnage.dev/inferencedeployment": owner, "tonnage.dev/placement": "mi300x"}
    return {
        "metadata": {"name": name, "uid": name, "labels": labels if owner else {}}
        | ({"deletionTimestamp": "2026-01-01T00:00:00Z"} if ending else {}),
        "spec": {"containers": [{"resources": {"limits": {"amd.com/gpu": str(gpus)}}}]}
        | ({"nodeName": on} if on else {}),
        "status": {"phase": "Running"},
    }


def promise(replicas: int, gpus: int = 2, owner: str = "llama") -> Promise:
    return Promise(f"{owner}-mi300x", owner, "mi300x", replicas, gpus, BOTH)


@pytest.mark.parametrize(
    ("blocks", "free", "fits"),
    [
        ([(2, BOTH), (2, BOTH)], {A: 2, B: 2}, True),
        ([(4, BOTH)], {A: 2, B: 2}, False),
        ([(1, BOTH), (1, frozenset({A}))], {A: 1, B: 1}, True),
        ([(1, frozenset({A})), (1, frozenset({A}))], {A: 1, B: 1}, False),
        ([(3, BOTH), (2, BOTH), (2, BOTH), (1, BOTH)], {A: 4, B: 4}, True),
    ],
)
def test_blocks_are_packed_if_possible(blocks: list[Any], free: dict[str, int], fits: bool) -> None:
    assert can_pack(blocks, free) is fits


def test_the_largest_keep_their_place() -> None:
    assert pack_largest_first([(1, BOTH), (4, BOTH)], {A: 4}) == [(4, BOTH)]


@pytest.mark.parametrize(
    ("what", "pods", "cordoned", "outstanding"),
    [
        ("a pod that is bound", [pod("p", 2)], False, 0),
        ("one that waits", [pod("p", 2, on=None)], False, 1),
        ("one of another size", [pod("p", 1)], False, 1),
        ("one that ends holds the place of its successor", [pod("p", 2, ending=True)], False, 0),
        ("unless nothing can start there", [pod("p", 2, ending=True)], True, 1),
        ("one that runs on a cordoned node", [pod("p", 2)], True, 0),
    ],
)
def test_a_replica_is_outstanding_until_a_pod_has_its_gpus(
    what: str, pods: list[Any], cordoned: bool, outstanding: int
) -> None:
    sight = Sight([node(A, cordoned=cordoned), node(B)], pods)
    assert sight.outstanding(promise(1)) == outstanding, what


def test_a_node_cannot_hold_more_than_it_has() -> None:
    pods = [pod("p", 4), pod("q", 1, owner=None)]
    assert find_overcommitted(Sight([node(A), node(B)], pods)) == [
        f"overcommitted: 5 of 4 GPUs of {A} are held"
    ]


def test_a_promise_is_broken_if_earlier_pods_hold_its_gpus() -> None:
    book, full = PromiseBook(), Sight([node(A)], [pod("other", 4, owner="beta")])
    book.note_losses(full, 1)
    book.note_promises([promise(1)], 1)
    unkept, scattered = book.find_unkept(full, [promise(1)])
    assert len(unkept) == 1
    assert scattered == 0


@pytest.mark.parametrize(
    ("what", "then"),
    [
        ("a node went", Sight([node(B)], [pod("p", 4, on=B, owner="beta")])),
        ("a node was shut", Sight([node(A, cordoned=True)], [])),
        ("a foreign pod came", Sight([node(A)], [pod("job", 4, owner=None)])),
    ],
)
def test_a_promise_on_lost_gpus_is_not_broken(what: str, then: Sight) -> None:
    book = PromiseBook()
    book.note_losses(Sight([node(A), node(B)], []), 1)
    book.note_promises([promise(1)], 1)
    book.note_losses(then, 2)
    assert book.find_unkept(then, [promise(1)]) == ([], 0), what


def test_free_gpus_without_a_large_block_are_scattered_and_not_promised_twice() -> None:
    book = PromiseBook()
    pods = [pod("p", 3, owner="beta"), pod("q", 3, on=B, owner="beta")]
    sight = Sight([node(A), node(B)], pods)
    book.note_losses(sight, 1)
    book.note_promises([promise(1)], 1)
    assert book.find_unkept(sight, [promise(1)]) == ([], 1)
