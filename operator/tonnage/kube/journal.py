"""Which writes were made in the name of one piece of work, so that one log line can tell them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_journal: ContextVar[list[str] | None] = ContextVar("writes", default=None)


@contextmanager
def journal_of_writes() -> Iterator[list[str]]:
    """Collects what is written inside the block, by this task and those that it starts."""
    writes: list[str] = []
    token = _journal.set(writes)
    try:
        yield writes
    finally:
        _journal.reset(token)


def enter_write(write: str) -> None:
    """Add a write that was carried out to the journal, when there is one."""
    journal = _journal.get()
    if journal is not None:
        journal.append(write)
