"""Settings of Python's cyclic garbage collector.

Reference counting frees nearly all objects of a reconcile. The collector scans all long-lived
objects again and again: the catalogue, the models and the whole fleet. With Python's defaults it
took an eighth of the CPU of a new object and blocked the only thread for up to 0.2 s at a time.
"""

import gc
from typing import Final

YOUNG_THRESHOLD: Final = 10_000
"""Net new objects, a MiB or two, after which the youngest generation is collected."""

OLDER_THRESHOLD: Final = 20
"""Collections of one generation after which the next older one is collected too."""


def set_gc_thresholds() -> None:
    """Set thresholds for a process that creates many objects, keeps few and runs for long."""
    gc.set_threshold(YOUNG_THRESHOLD, OLDER_THRESHOLD, OLDER_THRESHOLD)


def freeze_live_objects() -> None:
    """Exclude all current objects from later collections; reference counting still frees them."""
    gc.collect()
    gc.freeze()
