"""The sentence on what does not fit names the room that is too small."""

from tonnage.fit.model import DoesNotFit, MemoryAccount, MemoryTerm, Parallelism
from tonnage.placement.messages import tell_shortage

GIB = 2**30
ACCOUNT = MemoryAccount(80 * GIB, 72 * GIB, 0, 0, 0, 0, 0, 0, 0, 0)


def tell(term: MemoryTerm, needed: int, left: int, *, beside: bool = False) -> str:
    return tell_shortage(DoesNotFit(term, needed, left, ACCOUNT, beside), Parallelism(2), 4096)


def test_room_in_the_budget() -> None:
    told = tell(MemoryTerm.KV_CACHE, 5 * GIB, 3 * GIB)
    assert told == (
        "with TP 2 the KV cache of 4096 tokens needs 5.0 GiB a GPU; 3.0 of its 80.0 GiB are left"
    )


def test_room_beside_the_budget() -> None:
    told = tell(MemoryTerm.GRAPHS, 2 * GIB, GIB, beside=True)
    assert told.startswith("with TP 2 graphs need 2.0 GiB a GPU beside vLLM's share of the memory;")
    assert "leaves 1.0 of its 80.0 GiB free: lower it" in told


def test_figures_that_are_close_are_told_apart() -> None:
    assert "needs 5.04 GiB a GPU; 5.01 of" in tell(
        MemoryTerm.KV_CACHE, 5 * GIB + GIB // 25, 5 * GIB + GIB // 100
    )
    assert "needs 5.0010 GiB a GPU; 5.0000 of" in tell(
        MemoryTerm.KV_CACHE, 5 * GIB + GIB // 1000, 5 * GIB
    )
