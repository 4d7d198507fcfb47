"""How much work a call is, in lines of Python that run: it is the same on every machine.

A loop on one line counts each time round. What one call of C does is not seen, however long it
takes: tests/property/foreign/test_foreign_bytes_bounds.py holds that to seconds, with the largest
texts.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


class TooMuchWorkError(AssertionError):
    """More lines ran than may; what would never have ended has ended here."""


@dataclass(slots=True)
class Work:
    """Lines that ran until now."""

    lines: int = 0


@contextmanager
def counted_work(most: int) -> Iterator[Work]:
    """Count the lines that run within the block, in functions that are called there.

    Raises TooMuchWorkError at the line that is one too many.
    """
    work = Work()

    def count(frame: FrameType, event: str, _: object) -> Callable[..., Any]:
        if event == "line":
            work.lines += 1
        if work.lines > most:
            place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
            raise TooMuchWorkError(f"more than {most} lines ran, the last one is {place}")
        return count

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # or what earlier tests have left would be finalized here, and counted
    sys.settrace(count)
    try:
        yield work
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
