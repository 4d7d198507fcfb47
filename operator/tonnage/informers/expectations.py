"""Deletions and own writes that the operator knows of before the watch delivers their events.

As in the ReplicaSet controller, a reconcile must not act on a state before the operator's own
writes. The answer to an apply goes into the store itself. A deletion has no such answer: an older
event, or the answer to an earlier write, must not bring the object back. An object that a watch or
a list no longer shows may also have lost the labels of the selector. It comes back when it has them
again, in a newer version.

The operator also expects an event for each own write. Where none arrives, the watch is silent, and
the operator compares the store with a list.
"""

import sys
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from tonnage import delays

FOR_EVER: Final = sys.maxsize
"""Newer than every version, for deleted objects: the API server never reuses a uid."""


class _Deletion(NamedTuple):
    version: int
    deadline: float


class Expectations:
    """Uids of deleted objects, each with the version of its deletion, and of written objects whose
    event has not arrived yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._deletions: OrderedDict[str, _Deletion] = OrderedDict()
        self._events_due: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._deletions)

    def expect_event(self, uid: str) -> None:
        """Expect an event: the operator has written the object."""
        self._events_due.pop(uid, None)  # keeps the order by time
        self._events_due[uid] = self._clock() + delays.EVENT_DUE

    def observe_event(self, uid: str) -> None:
        """Record that an event of the object has arrived."""
        self._events_due.pop(uid, None)

    def take_overdue(self) -> bool:
        """Whether an expected event is overdue. Reports each event once."""
        now, is_overdue = self._clock(), False
        while self._events_due and next(iter(self._events_due.values())) <= now:
            self._events_due.popitem(last=False)
            is_overdue = True
        return is_overdue

    def expect_deletion(self, uid: str, version: int = FOR_EVER) -> None:
        """Record that the object is gone in this version, by an answer, an event or a list."""
        self._drop_expired()
        previous = self._deletions.pop(uid, None)  # keeps the order by deadline
        newest = version if previous is None else max(version, previous.version)
        self._deletions[uid] = _Deletion(newest, self._clock() + delays.EXPECTATION)

    def is_deleted(self, uid: str, version: int) -> bool:
        """Whether the object is gone, and this version is not newer than its deletion."""
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
