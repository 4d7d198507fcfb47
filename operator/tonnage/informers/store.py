"""A store of one kind: the latest version of each object, indexed by its owners.

Invariants:

- A version never replaces a newer one. resourceVersions of one cluster are compared as integers,
  which Kubernetes guarantees since 1.35 (KEP-5504) and every release did before.
- An object that a list does not show is gone, unless the store has a version newer than the list.
- An older event or answer does not bring a deleted object back (`Expectations`).
- The answer to an own write is in the store before the write returns to its caller; the event of
  that write is then no change.

A store keeps what `read` makes of an object, so that no caller can change a stored object by
accident, and memory holds only the needed fields.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from tonnage.informers.expectations import Expectations
from tonnage.kube.protocol import Object

T = TypeVar("T")

ObjectKey = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""

NO_VERSION: Final = 0
"""Older than every version of an API server."""


@dataclass(frozen=True, slots=True)
class Change(Generic[T]):
    """An object before and after a change; None where it did not exist, or is gone.

    `obj` is the full object, None where it is gone. `owners` are those before and after. `is_own`:
    the operator itself made the change.
    """

    place: ObjectKey
    before: T | None
    after: T | None
    obj: Object | None
    owners: tuple[ObjectKey, ...]
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class _Entry(Generic[T]):
    uid: str
    version: int
    value: T
    owners: tuple[ObjectKey, ...]


class Store(Generic[T]):
    """Objects of one kind by namespace and name.

    `read` makes the stored value, `find_owners` returns the InferenceDeployments that an object is
    or belongs to. The store calls `on_change` after each change. For one event loop.
    """

    def __init__(
        self,
        read: Callable[[Object], T],
        *,
        find_owners: Callable[[Object], Iterable[ObjectKey]] = lambda _: (),
        on_change: Callable[[Change[T]], None] = lambda _: None,
        expectations: Expectations | None = None,
    ) -> None:
        self._read = read
        self._find_owners = find_owners
        self._on_change = on_change
        self.expectations: Final = Expectations() if expectations is None else expectations
        self._entries: dict[ObjectKey, _Entry[T]] = {}
        self._waiting_events: dict[ObjectKey, list[tuple[str | None, Object]]] = {}
        self._by_owner: dict[ObjectKey, dict[ObjectKey, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    # Reading

    def get(self, namespace: str | None, name: str) -> T | None:
        """The stored value of the object; None where there is none."""
        entry = self._entries.get((namespace or "", name))
        return None if entry is None else entry.value

    def values(self) -> list[T]:
        """All stored values."""
        return [entry.value for entry in self._entries.values()]

    def object_keys(self) -> list[ObjectKey]:
        """Namespace and name of all objects, sorted."""
        return sorted(self._entries)

    def owners(self) -> set[ObjectKey]:
        """All owners of stored objects."""
        return set(self._by_owner)

    def owned_by(self, owner: ObjectKey) -> list[T]:
        """The stored values of the objects of this owner, by namespace and name."""
        places = sorted(self._by_owner.get(owner, ()))
        return [self._entries[place].value for place in places]

    def has_version(self, obj: Object) -> bool:
        """Whether the store has this version of the object or a newer one, or knows its deletion.
        Needs only the metadata of `obj`."""
        metadata = obj["metadata"]
        if self.expectations.is_deleted(metadata["uid"], _version(metadata)):
            return True
        entry = self._entries.get(_place(metadata))
        return entry is not None and entry.version >= _version(metadata)

    # Events

    def observe(self, event_type: str | None, obj: Object) -> None:
        """Store an event of a watch; an object of a list has None as its event type."""
        metadata = obj["metadata"]
        waiting = self._waiting_events.get(_place(metadata))
        if waiting is not None:
            waiting.append((event_type, obj))
            return
        self.expectations.observe_event(metadata["uid"])
        if event_type != "DELETED":
            self._put(obj)
            return
        version = _version(metadata)
        self.expectations.expect_deletion(metadata["uid"], version)
        entry = self._entries.get(_place(metadata))
        if entry is not None and entry.version <= version:
            # An entry of another uid was gone before the object of this event existed.
            self.expectations.expect_deletion(entry.uid, version)
            self._remove(_place(metadata), entry)

    # Own writes

    @contextmanager
    def write_in_flight(self, namespace: str | None, name: str) -> Iterator[None]:
        """While the operator writes this object, its events wait until the block ends.

        The event of a write may arrive before its answer. It would count as a change by another
        writer, and cost a reconcile. One write of an object is in flight at a time.
        """
        place = namespace or "", name
        self._waiting_events[place] = []
        try:
            yield
        finally:
            for event_type, obj in self._waiting_events.pop(place):
                self.observe(event_type, obj)

    def put_written(self, obj: Object) -> None:
        """Store the answer to an own write, unless the store has this version or a newer one."""
        if not self.has_version(obj):
            self.expectations.expect_event(obj["metadata"]["uid"])
            self._put(obj, is_own=True)

    def remove_deleted(self, namespace: str | None, name: str, uid: str) -> None:
        """Forget an object that the API server has deleted at the operator's request."""
        self.expectations.expect_deletion(uid)
        self.expectations.expect_event(uid)
        place = namespace or "", name
        entry = self._entries.get(place)
        if entry is not None and entry.uid == uid:
            self._remove(place, entry, is_own=True)

    # Lists

    def begin_list(self, namespace: str | None = None) -> "Listing[T]":
        """Start to store a list of all objects, of one namespace or (None) of all."""
        return Listing(self, namespace)

    def _absent(
        self, namespace: str | None, listed: set[ObjectKey], version: int
    ) -> list[tuple[ObjectKey, _Entry[T]]]:
        """The entries that a list of this version would show and does not."""
        return [
            (place, entry)
            for place, entry in self._entries.items()
            if place not in listed and namespace in (None, place[0]) and entry.version <= version
        ]

    def clear(self, namespace: str | None = None) -> None:
        """Remove all objects, of one namespace or (None) of all: the API server has none of the
        kind any more."""
        for place, entry in list(self._entries.items()):
            if namespace in (None, place[0]):
                self._remove(place, entry)

    def _end_list(self, namespace: str | None, listed: set[ObjectKey], version: int) -> int:
        absent = self._absent(namespace, listed, version)
        for place, entry in absent:
            self.expectations.expect_deletion(entry.uid, version)
            self._remove(place, entry)
        return len(absent)

    # Internals

    def _put(self, obj: Object, *, is_own: bool = False) -> None:
        metadata = obj["metadata"]
        place, version = _place(metadata), _version(metadata)
        previous = self._entries.get(place)
        is_known = previous is not None and version <= previous.version
        if is_known or self.expectations.is_deleted(metadata["uid"], version):
            return
        if previous is not None and previous.uid != metadata["uid"]:
            self.expectations.expect_deletion(previous.uid, version)
        owners = tuple(self._find_owners(obj))
        entry = _Entry(metadata["uid"], version, self._read(obj), owners)
        if previous is not None:
            self._drop(place, previous)
        self._entries[place] = entry
        for owner in owners:
            self._by_owner.setdefault(owner, {})[place] = None
        value_before, owners_before = (previous.value, previous.owners) if previous else (None, ())
        all_owners = tuple(dict.fromkeys((*owners_before, *owners)))
        self._on_change(Change(place, value_before, entry.value, obj, all_owners, is_own))

    def _remove(self, place: ObjectKey, entry: _Entry[T], *, is_own: bool = False) -> None:
        self._drop(place, entry)
        self._on_change(Change(place, entry.value, None, None, entry.owners, is_own))

    def _drop(self, place: ObjectKey, entry: _Entry[T]) -> None:
        del self._entries[place]
        for owner in entry.owners:
            places = self._by_owner[owner]
            del places[place]
            if not places:
                del self._by_owner[owner]


class Listing(Generic[T]):
    """A list in progress, stored object by object."""

    def __init__(self, store: Store[T], namespace: str | None) -> None:
        self._store = store
        self._namespace = namespace
        self._listed: set[ObjectKey] = set()

    def take(self, obj: Object) -> None:
        """Store an object of the list."""
        self._listed.add(_place(obj["metadata"]))
        self._store._put(obj)

    def confirm(self, obj: Object) -> bool:
        """Record an object of the list by its metadata. Returns whether the store has this version
        or a newer one."""
        self._listed.add(_place(obj["metadata"]))
        return self._store.has_version(obj)

    def is_exact(self, version: str) -> bool:
        """Whether the store has no object that a list of this version should show and did not."""
        return not self._store._absent(self._namespace, self._listed, parse_version(version))

    def end(self, version: str) -> int:
        """End a complete list of this version: remove the objects that it did not show. Returns
        their number."""
        return self._store._end_list(self._namespace, self._listed, parse_version(version))


def parse_version(version: str) -> int:
    """A resourceVersion as a number; NO_VERSION for text that is no number."""
    return int(version) if version.isdecimal() else NO_VERSION


def _place(metadata: Mapping[str, str]) -> ObjectKey:
    return metadata.get("namespace") or "", metadata["name"]


def _version(metadata: Mapping[str, str]) -> int:
    return parse_version(metadata["resourceVersion"])
