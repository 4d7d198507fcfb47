"""The largest number that still holds, found by halving."""

from collections.abc import Callable


def largest(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number from 0 to `limit` that holds, where all below one that holds do too.

    0 is taken to hold. `limit` is tried first, and each number at most once.
    """
    if holds(limit):
        return limit
    kept, broken = 0, limit
    while broken - kept > 1:
        middle = (kept + broken) // 2
        kept, broken = (middle, broken) if holds(middle) else (kept, middle)
    return kept
