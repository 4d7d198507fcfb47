"""Binary search for the largest number that satisfies a condition."""

from collections.abc import Callable


def largest(holds: Callable[[int], bool], limit: int) -> int:
    """The largest number from 0 to `limit` for which `holds` is true; all smaller ones satisfy it.

    The search assumes that 0 satisfies it, tries `limit` first, and each number at most once.
    """
    if holds(limit):
        return limit
    passing, failing = 0, limit
    while failing - passing > 1:
        middle = (passing + failing) // 2
        passing, failing = (middle, failing) if holds(middle) else (passing, middle)
    return passing
