"""Priorities of the work queue."""

from enum import IntEnum


class Priority(IntEnum):
    """Why a key is in the queue, most urgent first."""

    NEW_GENERATION = 0
    """A user changed a spec, and no status has observed that generation yet."""
    EVENT = 1
    """A watch event, or a delay that is over."""
    RESYNC = 2
    """The periodic resync."""
