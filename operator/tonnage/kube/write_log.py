"""Records the writes of one task, so that one log line can list them."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_collected: ContextVar[list[str] | None] = ContextVar("writes", default=None)


@contextmanager
def collect_writes() -> Iterator[list[str]]:
    """Collects the writes inside the block, of this task and of those that it starts."""
    writes: list[str] = []
    token = _collected.set(writes)
    try:
        yield writes
    finally:
        _collected.reset(token)


def enter_write(write: str) -> None:
    """Record a completed write, where a block collects writes."""
    writes = _collected.get()
    if writes is not None:
        writes.append(write)
