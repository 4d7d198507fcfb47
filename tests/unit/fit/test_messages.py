"""The message on a model that does not fit names the memory that is too small."""

from tonnage.fit.messages import format_shortage
from tonnage.fit.model import DoesNotFit, MemoryAccount, MemoryTerm, Parallelism

GIB = 2**30
ACCOUNT = MemoryAccount(80 * GIB, 72 * GIB, 0, 0, 0, 0, 0, 0, 0, 0)


def shortage_message(
    term: MemoryTerm, needed: int, left: int, *, outside_budget: bool = False
) -> str:
    shortage = DoesNotFit(term, needed, left, ACCOUNT, outside_budget)
    return format_shortage(shortage, Parallelism(2), 4096)


def test_a_shortage_in_the_budget() -> None:
    message = shortage_message(MemoryTerm.KV_CACHE, 5 * GIB, 3 * GIB)
    assert message == (
        "with TP 2 the KV cache of 4096 tokens needs 5.0 GiB a GPU; 3.0 of its 80.0 GiB are left"
    )


def test_a_shortage_outside_the_budget() -> None:
    message = shortage_message(MemoryTerm.GRAPHS, 2 * GIB, GIB, outside_budget=True)
    assert message.startswith(
        "with TP 2 graphs need 2.0 GiB a GPU outside vLLM's share of the memory;"
    )
    assert "leaves 1.0 of its 80.0 GiB free: lower it" in message


def test_close_figures_are_distinguishable() -> None:
    assert "needs 5.04 GiB a GPU; 5.01 of" in shortage_message(
        MemoryTerm.KV_CACHE, 5 * GIB + GIB // 25, 5 * GIB + GIB // 100
    )
    assert "needs 5.0010 GiB a GPU; 5.0000 of" in shortage_message(
        MemoryTerm.KV_CACHE, 5 * GIB + GIB // 1000, 5 * GIB
    )
