"""How often Python looks for objects that refer to each other and to which nothing else refers.

Nearly all that a reconcile makes goes when nothing refers to it any more, without a search. The
search looks at everything that has lived for long, again and again: the catalogue, the models, and
the whole fleet. As Python begins with it, it took an eighth of the CPU of a new object and held up
the only thread for up to 0.2 s at a time.
"""

import gc
from typing import Final

YOUNG: Final = 10_000
"""Objects more than have gone, until the youngest are searched: a MiB or two."""

ROUNDS: Final = 20
"""Searches of the youngest until the next older ones are searched, and of these until all are."""


def search_seldom() -> None:
    """For a process that makes much, keeps little and lives for long."""
    gc.set_threshold(YOUNG, ROUNDS, ROUNDS)


def never_search_what_is_there() -> None:
    """What lives now is taken to stay: no later search looks at it. What of it goes all the same,
    goes when nothing refers to it."""
    gc.collect()
    gc.freeze()
