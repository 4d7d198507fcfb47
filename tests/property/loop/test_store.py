"""A store behind late, dropped and relisted watches: newest news wins, and a list is the truth.

One API server with ordered versions, objects of which some are not selected at times, a watch whose
events may come late or never, own writes whose answers come in any order, and lists that are begun
before and end after all of this.
"""

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from tonnage.informers.store import Change, Listing, Store
from tonnage.kube.protocol import Object

Value = tuple[str, int, str]
"""uid, version and label."""

NAMES = st.sampled_from("abc")
LABELS = st.sampled_from(["", "x", "y", "x.y"])


def keys_of(body: Object) -> Iterable[str]:
    label: str = body["metadata"]["labels"]["team"]
    return label.split(".") if label else ()


def value_of(body: Object) -> Value:
    metadata = body["metadata"]
    return metadata["uid"], int(metadata["resourceVersion"]), metadata["labels"]["team"]


@dataclass
class Server:
    """What there is, and the events of all changes that no watch has brought yet."""

    version: int = 0
    uids: int = 0
    objects: dict[str, Object] = field(default_factory=dict)
    hidden: set[str] = field(default_factory=set)
    events: list[tuple[str, Object]] = field(default_factory=list)

    def write(self, name: str, label: str) -> Object:
        live = self.objects.get(name)
        if live is None:
            self.uids += 1
        uid = live["metadata"]["uid"] if live else f"uid-{self.uids}"
        body = self._body(name, uid, label)
        self.objects[name] = body
        if name not in self.hidden:
            self.events.append(("MODIFIED" if live else "ADDED", body))
        return body

    def delete(self, name: str) -> Object | None:
        live = self.objects.pop(name, None)
        if live is None:
            return None
        is_hidden = name in self.hidden
        self.hidden.discard(name)
        gone = self._body(name, live["metadata"]["uid"], live["metadata"]["labels"]["team"])
        if not is_hidden:
            self.events.append(("DELETED", gone))
        return gone

    def select(self, name: str, *, is_selected: bool) -> None:
        """The object gets or loses the labels that lists and watches select it by."""
        live = self.objects.get(name)
        if live is None or (name in self.hidden) is not is_selected:
            return
        metadata = live["metadata"]
        body = self._body(name, metadata["uid"], metadata["labels"]["team"])
        self.objects[name] = body
        self.events.append(("ADDED" if is_selected else "DELETED", body))
        (self.hidden.discard if is_selected else self.hidden.add)(name)

    def listed(self) -> list[Object]:
        return [body for name, body in self.objects.items() if name not in self.hidden]

    def _body(self, name: str, uid: str, label: str) -> Object:
        self.version += 1
        metadata = {"name": name, "namespace": "chat", "uid": uid, "labels": {"team": label}}
        return {"metadata": {**metadata, "resourceVersion": str(self.version)}}


@dataclass
class Page:
    """A list of the server at a version, on its way."""

    version: int
    objects: list[Object]
    listing: Listing[Value]


class StoreBehindWatches(RuleBasedStateMachine):
    answers: Bundle[Object] = Bundle("answers")
    deletions: Bundle[Object] = Bundle("deletions")
    lists: Bundle[Page] = Bundle("lists")

    def __init__(self) -> None:
        super().__init__()
        self.server = Server()
        self.followed: dict[str, Value] = {}
        self.store = Store(value_of, find_owners=keys_of, on_change=self.follow)
        self.seen: dict[str, int] = {}
        """The newest version of each name that the store was given."""
        self.in_flight: dict[str, tuple[ExitStack, list[Object]]] = {}
        """Writes that are not answered yet, each with the events that wait for that."""

    def follow(self, change: Change[Value]) -> None:
        name = change.place[1]
        assert self.followed.pop(name, None) == change.before
        if change.after is not None:
            self.followed[name] = change.after

    def saw(self, body: Object) -> None:
        name, version = body["metadata"]["name"], int(body["metadata"]["resourceVersion"])
        self.seen[name] = max(version, self.seen.get(name, 0))

    # Somebody else

    @rule(name=NAMES, label=LABELS)
    def somebody_writes(self, name: str, label: str) -> None:
        self.server.write(name, label)

    @rule(name=NAMES)
    def somebody_deletes(self, name: str) -> None:
        self.server.delete(name)

    @rule(name=NAMES, is_selected=st.booleans())
    def somebody_changes_the_shard(self, name: str, is_selected: bool) -> None:
        self.server.select(name, is_selected=is_selected)

    # The operator

    @rule(target=answers, name=NAMES, label=LABELS)
    def operator_writes(self, name: str, label: str) -> Object:
        self.server.select(name, is_selected=True)  # it applies its own labels
        return self.server.write(name, label)

    @rule(answer=consumes(answers))
    def write_is_answered(self, answer: Object) -> None:
        self.saw(answer)
        self.store.put_written(answer)

    @rule(name=NAMES)
    def write_is_sent(self, name: str) -> None:
        if name not in self.in_flight:
            self.in_flight[name] = ExitStack(), []
            self.in_flight[name][0].enter_context(self.store.write_in_flight("chat", name))

    @rule(name=NAMES)
    def write_ends(self, name: str) -> None:
        if name in self.in_flight:
            stack, waiting = self.in_flight.pop(name)
            for body in waiting:
                self.saw(body)
            stack.close()

    @rule(target=deletions, name=NAMES)
    def operator_deletes(self, name: str) -> Object:
        return self.server.delete(name) or {}

    @rule(gone=consumes(deletions))
    def deletion_is_answered(self, gone: Object) -> None:
        if gone:
            metadata = gone["metadata"]
            self.store.remove_deleted(metadata["namespace"], metadata["name"], metadata["uid"])

    # The watch

    @rule(count=st.integers(1, 5))
    def watch_brings_events(self, count: int) -> None:
        for _ in range(min(count, len(self.server.events))):
            event_type, body = self.server.events.pop(0)
            if (write := self.in_flight.get(body["metadata"]["name"])) is not None:
                write[1].append(body)
            else:
                self.saw(body)
            self.store.observe(event_type, body)

    @rule(count=st.integers(1, 5))
    def watch_loses_events(self, count: int) -> None:
        del self.server.events[:count]

    # Lists

    @rule(target=lists)
    def list_is_begun(self) -> Page:
        listing = self.store.begin_list()
        return Page(self.server.version, self.server.listed(), listing)

    @rule(page=consumes(lists))
    def list_ends(self, page: Page) -> None:
        for body in page.objects:
            self.saw(body)
            page.listing.take(body)
        page.listing.end(str(page.version))
        shown = {body["metadata"]["name"] for body in page.objects}
        for uid, version, _ in self.store.values():
            name = next(name for name, each in self.followed.items() if each[0] == uid)
            assert name in shown or version > page.version, "a ghost"

    # What is always true

    @invariant()
    def is_never_older_than_what_it_was_given(self) -> None:
        for name, (_, version, _) in self.followed.items():
            assert version == self.seen[name]

    @invariant()
    def changes_tell_all(self) -> None:
        assert sorted(self.followed.values()) == sorted(self.store.values())

    @invariant()
    def indexes_are_those_of_a_rebuild(self) -> None:
        rebuilt: dict[str, list[Value]] = {}
        for _, value in sorted(self.followed.items()):
            for key in value[2].split(".") if value[2] else ():
                rebuilt.setdefault(key, []).append(value)
        keys = self.store.owners()
        assert {str(key): self.store.owned_by(key) for key in keys} == rebuilt

    def teardown(self) -> None:
        """A list after all of this, and what is still on its way: the store is the truth."""
        for name in list(self.in_flight):
            self.write_ends(name)
        self.list_ends(self.list_is_begun())
        self.check_truth()
        while self.server.events:
            self.watch_brings_events(1)
        self.check_truth()

    def check_truth(self) -> None:
        stored = {value_of(body) for body in self.server.listed()}
        assert set(self.store.values()) == stored


TestStoreBehindWatches = StoreBehindWatches.TestCase
TestStoreBehindWatches.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
