"""What a watch has told of one kind, kept true by lists.

A watch can miss deletions (after a 410 the survivors are told again, the dead are not), so that a
list replaces what is known now and then. An event that came after the list was begun is newer than
the list and stands.

What a list finds changed and no event tells either soon after is a sign that the watch is silent:
a connection that somewhere on its way was dropped can look open for ever.
"""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class SeenObjects(Generic[T]):
    """Objects by identity, each with its uid and what is needed of it.

    `put` is told of each one that is new or is not as it was, `drop` of each one that is gone.
    """

    def __init__(self, put: Callable[[str, T], None], drop: Callable[[str], None]) -> None:
        self._put = put
        self._drop = drop
        self._objects: dict[str, tuple[str, T]] = {}
        self._told_at: dict[str, int] = {}
        self._events = 0
        self._unannounced: set[str] = set()
        self._begun_anew: int | None = 0

    def __len__(self) -> int:
        return len(self._objects)

    def mark(self) -> int:
        """The moment before a list is asked for."""
        return self._events

    def observe(self, identity: str, uid: str, value: T) -> bool:
        """An event told of the object; whether what is known changed."""
        self._tell(identity)
        return self._learn(identity, uid, value)

    def forget(self, identity: str, uid: str) -> bool:
        """An event told that the object of this uid is gone; whether it was known."""
        if self._objects.get(identity, (uid, None))[0] != uid:
            return False  # one of the same name is already there in its place
        self._tell(identity)
        return self._lose(identity)

    def begin_anew(self) -> None:
        """The watch was begun anew: what the next list finds changed, it could not have told."""
        self._events += 1
        self._begun_anew = self._events
        self._unannounced.clear()

    def take_unannounced(self) -> int:
        """Changes that lists found and that no event has told since; counted once."""
        count = len(self._unannounced)
        self._unannounced.clear()
        return count

    def replace(self, listed: Iterable[tuple[str, str, T]], since: int) -> bool:
        """A list begun at the mark `since` is complete; whether what is known changed."""
        newer = {identity for identity, moment in self._told_at.items() if moment > since}
        self._told_at = {identity: self._told_at[identity] for identity in newer}
        changed: set[str] = set()
        present = set(newer)
        for identity, uid, value in listed:
            present.add(identity)
            if identity not in newer and self._learn(identity, uid, value):
                changed.add(identity)
        for gone in sorted(self._objects.keys() - present):
            self._lose(gone)
            changed.add(gone)
        if self._begun_anew is None:
            self._unannounced |= changed
        elif self._begun_anew <= since:
            self._begun_anew = None
        return bool(changed)

    def _learn(self, identity: str, uid: str, value: T) -> bool:
        if self._objects.get(identity) == (uid, value):
            return False
        self._objects[identity] = (uid, value)
        self._put(identity, value)
        return True

    def _lose(self, identity: str) -> bool:
        if self._objects.pop(identity, None) is None:
            return False
        self._drop(identity)
        return True

    def _tell(self, identity: str) -> None:
        self._events += 1
        self._told_at[identity] = self._events
        self._unannounced.discard(identity)
