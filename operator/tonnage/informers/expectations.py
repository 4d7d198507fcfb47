"""What is known of own writes and of deletions before the watch tells of them.

As in the ReplicaSet controller, a reconcile must not act on a world before the operator's own
writes. The answer to an apply goes into the store itself. A deletion has no such answer: an older
event, or the answer to an earlier write, must not bring the object back. An object that a watch or
a list no longer shows may also have lost the labels that it is selected by. It comes back when it
has them again, in a newer version.

Each own write is also an event to be expected. Where none comes, the watch is silent, and the store
is compared with a list.
"""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from tonnage import delays

FOR_EVER: Final = sys.maxsize
"""Newer than every version: of what the API server has deleted. A uid is never used again."""


class _Deletion(NamedTuple):
    version: int
    deadline: float


class Expectations:
    """Uids of deleted objects, each with the version in which it was gone, and of written objects
    whose event is still to come."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deletions: OrderedDict[str, _Deletion] = OrderedDict()
        self._events_due: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._deletions)

    def expect_event(self, uid: str) -> None:
        """The operator has written the object, and no event has told of that yet."""
        self._events_due.pop(uid, None)  # the order is that of the times
        self._events_due[uid] = self._clock() + delays.EVENT_DUE

    def observe_event(self, uid: str) -> None:
        """An event of the object has arrived."""
        self._events_due.pop(uid, None)

    def take_overdue(self) -> bool:
        """Whether an expected event is overdue; each is reported once."""
        now, is_overdue = self._clock(), False
        while self._events_due and next(iter(self._events_due.values())) <= now:
            self._events_due.popitem(last=False)
            is_overdue = True
        return is_overdue

    def expect_deletion(self, uid: str, version: int = FOR_EVER) -> None:
        """The object was gone in this version: by an answer of the API server, an event or a
        list."""
        self._drop_expired()
        before = self._deletions.pop(uid, None)  # the order is that of the deadlines
        newest = version if before is None else max(version, before.version)
        self._deletions[uid] = _Deletion(newest, self._clock() + delays.EXPECTATION)

    def is_deleted(self, uid: str, version: int) -> bool:
        """Whether the object is known to be gone, and this version of it is no newer news."""
        self._drop_expired()
        deletion = self._deletions.get(uid)
        return deletion is not None and version <= deletion.version

    def _drop_expired(self) -> None:
        now = self._clock()
        while self._deletions:
            uid, deletion = next(iter(self._deletions.items()))
            if deletion.deadline > now:
                return
            del self._deletions[uid]
