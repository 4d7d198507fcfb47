"""What a watch has told of one kind, kept true by lists.

A watch can miss deletions (after a 410 the survivors are told again, the dead are not), so that a
list replaces what is known now and then. An event that came after the list was begun is newer than
the list and stands.

A list need not show all of an object again that is known in its version: `known` tells.

What a list finds changed and no event tells either soon after is a sign that the watch is silent:
a connection that somewhere on its way was dropped can look open for ever.
"""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final, Generic, TypeVar

T = TypeVar("T")

ANY_VERSION: Final = "*"
"""Of what counts no more, whatever is still written of it."""

Versions = Mapping[str, tuple[str, str]]
"""The uid and the resourceVersion of objects, by identity."""

_NO_VERSIONS: Final[Versions] = MappingProxyType({})


class SeenObjects(Generic[T]):
    """Objects by identity, each with its uid and what is needed of it.

    `put` is told of each one that is new or is not as it was, `drop` of each one that is gone.
    """

    def __init__(self, put: Callable[[str, T], None], drop: Callable[[str], None]) -> None:
        self._put = put
        self._drop = drop
        self._objects: dict[str, tuple[str, T]] = {}
        self._versions: dict[str, tuple[str, str]] = {}
        self._told_at: dict[str, int] = {}
        self._events = 0
        self._unannounced: set[str] = set()
        self._begun_anew: int | None = 0

    def __len__(self) -> int:
        return len(self._objects)

    def mark(self) -> int:
        """The moment before a list is asked for."""
        return self._events

    @property
    def knows_versions(self) -> bool:
        """Whether anything was told of with its version."""
        return bool(self._versions)

    def known(self, identity: str, uid: str, version: str) -> tuple[str, str] | None:
        """The uid and the version that were told last of the object, where this is that one."""
        found = self._versions.get(identity)
        return found if found in ((uid, version), (uid, ANY_VERSION)) else None

    def was_told(self, identity: str, since: int) -> bool:
        """Whether an event has told of the object since that mark."""
        return self._told_at.get(identity, 0) > since

    def observe(self, identity: str, uid: str, value: T | None, version: str | None = None) -> bool:
        """An event told of the object, in this version; whether what is known changed. None is the
        value of what needs no place."""
        self._tell(identity)
        self._note(identity, uid, version)
        return self._lose(identity) if value is None else self._learn(identity, uid, value)

    def forget(self, identity: str, uid: str) -> bool:
        """An event told that the object of this uid is gone; whether it was known."""
        if self._objects.get(identity, (uid, None))[0] != uid:
            return False  # one of the same name is already there in its place
        self._tell(identity)
        self._versions.pop(identity, None)
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

    def replace(
        self,
        listed: Iterable[tuple[str, str, T]],
        since: int,
        versions: Versions = _NO_VERSIONS,
    ) -> bool:
        """A list begun at the mark `since` is complete; whether what is known changed. `versions`
        are uids and versions by identity of all that it showed, also of what needs no place, and of
        what is known in that version and not listed."""
        newer = {identity for identity, moment in self._told_at.items() if moment > since}
        self._told_at = {identity: self._told_at[identity] for identity in newer}
        changed: set[str] = set()
        shown = set()
        for identity, uid, value in listed:
            shown.add(identity)
            if identity not in newer and self._learn(identity, uid, value):
                changed.add(identity)
        kept = {one for one, found in versions.items() if self._versions.get(one) == found} - shown
        for gone in sorted(self._objects.keys() - newer - shown - kept):
            self._lose(gone)
            changed.add(gone)
        told = {one: self._versions[one] for one in newer if one in self._versions}
        self._versions = {**versions, **told}
        for one in newer - told.keys():
            self._versions.pop(one, None)
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

    def _note(self, identity: str, uid: str, version: str | None) -> None:
        if version is None:
            self._versions.pop(identity, None)
        else:
            self._versions[identity] = (uid, version)

    def _tell(self, identity: str) -> None:
        self._events += 1
        self._told_at[identity] = self._events
        self._unannounced.discard(identity)
