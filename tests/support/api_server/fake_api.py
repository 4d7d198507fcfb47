"""An API server in memory, behind the same protocol as the real one.

Held to the real API server by the contract suite in api_contract.py. Every call can be made to
fail, and the process can be made to die before or after any write.
"""

import pickle
import re
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, Protocol, TypeVar

from e2e.recordings.recording import managers, part_of
from tests.support.api_server.api_calls import WRITES, Call, Fault, Verb
from tests.support.api_server.field_ownership import (
    CUSTOM_MAP_LISTS,
    MAP_LISTS,
    Fields,
    Ownership,
    flatten,
    unflatten,
)
from tonnage.api.names import CHILD_FIELD_MANAGER, GROUP, LABEL_OWNER, STATUS_FIELD_MANAGER
from tonnage.kube import kinds
from tonnage.kube.client import NO_VERSION
from tonnage.kube.kinds import DEPLOYMENTS, EVENTS, LEASES, PODS
from tonnage.kube.protocol import (
    ConflictError,
    InvalidError,
    Kind,
    KindMissingError,
    Labels,
    NotFoundError,
    Object,
    ObjectParts,
    Selection,
    WatchEvent,
    has_labels,
)

SERVED = frozenset(kind for kind in vars(kinds).values() if isinstance(kind, Kind))

_SERVER_FIELDS = tuple(
    ("metadata", name)
    for name in ("name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp")
)
IDENTITY = frozenset(_SERVER_FIELDS) | {("apiVersion",), ("kind",)}
"""Leaves that the server owns; no manager does."""


Body = TypeVar("Body")

_CONFIG_KEY = re.compile(r"(?!\.$|\.\.)[-._a-zA-Z0-9]{1,253}")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class Crash(BaseException):
    """The process ends here, as if killed."""


@dataclass(slots=True)
class _Stored:
    """An object as it is now. `replace` brings the next version: nothing else changes it."""

    object: Object
    ownership: Ownership = field(default_factory=Ownership)
    _pickled: bytes | None = None
    _fields: Fields | None = None

    def replace(self, body: Object) -> None:
        """Store the next version."""
        self.object, self._pickled, self._fields = body, None, None

    def copied(self) -> Object:
        """A copy, which its reader can change."""
        if self._pickled is None:
            self._pickled = pickle.dumps(self.object, pickle.HIGHEST_PROTOCOL)
        copy: Object = pickle.loads(self._pickled)
        return copy

    def fields(self, kind: Kind) -> Fields:
        """Its leaves, which no reader changes."""
        if self._fields is None:
            self._fields = _fields(kind, self.object)
        return self._fields


_Place = tuple[str, str]
"""Namespace, empty where there is none, and name."""
_Shelf = dict[_Place, _Stored]
"""All objects of one kind."""

Listener = Callable[[Kind, str, Object], None]
"""Called for each change with the kind, ADDED, MODIFIED or DELETED, and the object."""


class Admission(Protocol):
    """What sees a new or changed object before it is stored."""

    def admit(self, api: "FakeApi", kind: Kind, body: Object, *, is_new: bool) -> None:
        """Change the body in place. Raises ForbiddenError where it is refused."""
        ...


class FakeApi:
    """KubeApi and LeaseApi in memory; users and other controllers act through the sync methods."""

    def __init__(self, now: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self.now = now
        self.calls: list[Call] = []
        self.listeners: list[Listener] = []
        self.admission: Admission | None = None
        self._shelves: dict[Kind, _Shelf] = {}
        self._logs: dict[tuple[str, str, str, bool], str] = {}
        self._faults: list[Fault] = []
        self._acts: dict[int, Callable[[], object]] = {}
        self._version = int(NO_VERSION)
        self._uids = 0
        self._writes = 0
        self._asked = 0

    def copy(self) -> "FakeApi":
        """Another server with all that is stored in this one, and no call or fault yet."""
        other = FakeApi(self.now)
        other.admission = self.admission
        other._shelves, other._logs = _copied((self._shelves, self._logs))
        other._version, other._uids = self._version, self._uids
        return other

    # Faults and evidence

    def fail_next(
        self,
        verb: Verb | None,
        error: BaseException,
        *,
        kind: Kind | None = None,
        after: bool = False,
        times: int = 1,
    ) -> None:
        """Let the next such calls fail; with `after` the write is done and its answer is lost."""
        self._faults += [Fault(error, after, verb, kind)] * times

    def fault_at_write(self, number: int, error: BaseException, *, after: bool = False) -> None:
        """Raise at the write of this number, counted from 1 since this object was made."""
        self._faults.append(Fault(error, after, write=number))

    def fault_at_call(self, number: int, error: BaseException) -> None:
        """Raise instead of the call of this number, reads included, counted from 1."""
        self._faults.append(Fault(error, after=False, call=number))

    def act_at_call(self, number: int, act: Callable[[], object]) -> None:
        """Let somebody else act right before the call of this number, reads included."""
        self._acts[number] = act

    def clear_faults(self) -> None:
        """Let everything go through again."""
        self._faults.clear()

    @property
    def version(self) -> str:
        """The resourceVersion of now."""
        return str(self._version)

    @property
    def call_count(self) -> int:
        """Calls asked for so far, whatever became of them."""
        return self._asked

    @property
    def write_count(self) -> int:
        """Writes asked for so far, whether or not they changed anything."""
        return self._writes

    def effective_writes(self) -> list[Call]:
        """Writes that changed something."""
        return [call for call in self.calls if call.effective]

    def counts(self) -> Counter[str]:
        """Calls by verb."""
        return Counter(call.verb for call in self.calls)

    # What users and other controllers do

    def put(self, kind: Kind, body: Object, manager: str = "user") -> Object:
        """Create or replace, as kubectl and the built-in controllers do; status included."""
        place = _place(kind, body["metadata"].get("namespace"), body["metadata"]["name"])
        stored = self._shelf(kind).setdefault(place, _Stored({}))
        body = _without_fractions(body)
        body.setdefault("apiVersion", kind.api_version)
        body.setdefault("kind", kind.kind)
        live = stored.fields(kind)
        wanted = _fields(kind, body)
        was_kept = bool(stored.object.get("metadata", {}).get("finalizers"))
        stored.ownership.update(live, wanted, manager)
        self._store(kind, stored, live, wanted, body["metadata"])
        metadata = stored.object["metadata"]
        if was_kept and "deletionTimestamp" in metadata and not metadata.get("finalizers"):
            self.remove(kind, *place)  # the last finalizer is gone
        return stored.copied()

    def post(self, kind: Kind, body: Object, manager: str) -> Object:
        """Create an object as a controller does, which admission may change or refuse. Raises
        ForbiddenError."""
        body = _copied(body)
        if self.admission is not None:
            self.admission.admit(self, kind, body, is_new=True)
        return self.put(kind, body, manager)

    def restore(self, kind: Kind, body: Object) -> Object:
        """Store an object as another server had it: its uid, generation and creation time stay, and
        `metadata.managedFields` names the owners of its fields."""
        metadata = body["metadata"]
        self._version += 1
        kept = {key: metadata[key] for _, key in _SERVER_FIELDS if key in metadata}
        plain = {key: value for key, value in metadata.items() if key != "managedFields"}
        leaves = _fields(kind, _without_fractions({**body, "metadata": plain}))
        content = unflatten(leaves)
        identity = {**kept, "resourceVersion": str(self._version)}
        content["metadata"] = identity | content.get("metadata", {})
        stored = _Stored({"apiVersion": kind.api_version, "kind": kind.kind} | content)
        for manager in {name for name, _, _ in managers(body)}:
            owned = part_of(body, manager, "", "status", "scale")
            stored.ownership.assign(_fields(kind, owned), manager)
        self._shelf(kind)[_place(kind, metadata.get("namespace"), metadata["name"])] = stored
        self._tell(kind, "ADDED", stored.object)
        return stored.copied()

    def set_status(self, kind: Kind, namespace: str | None, name: str, status: Object) -> Object:
        """Replace the status, as the controller of that kind does."""
        body = self.object(kind, namespace, name)
        body["status"] = status
        return self.put(kind, body, manager="other-controller")

    def remove(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Delete without any precondition, as a user does; a finalizer keeps the object."""
        place = _place(kind, namespace, name)
        stored = self._shelf(kind).get(place)
        if stored is None:
            return
        self._version += 1
        metadata = {**stored.object["metadata"], "resourceVersion": str(self._version)}
        if metadata.get("finalizers"):
            metadata.setdefault("deletionTimestamp", self.now.strftime("%Y-%m-%dT%H:%M:%SZ"))
            stored.replace({**stored.object, "metadata": metadata})
            self._tell(kind, "MODIFIED", stored.object)
            return
        del self._shelf(kind)[place]
        self._tell(kind, "DELETED", {**stored.object, "metadata": metadata})

    def object(self, kind: Kind, namespace: str | None, name: str) -> Object:
        """A copy of what is stored. Raises NotFoundError."""
        return self._find(kind, namespace, name).copied()

    def objects(self, kind: Kind) -> list[Object]:
        """Copies of all stored objects of a kind, by namespace and name."""
        return [stored.copied() for _, stored in self._in_order(kind)]

    def versions(self, kind: Kind) -> list[tuple[str, str, str, str | None]]:
        """Namespace, name, uid with resourceVersion, and owner's label, of all of a kind: cheap."""
        return [
            (
                *place,
                f"{metadata['uid']}@{metadata['resourceVersion']}",
                metadata.get("labels", {}).get(LABEL_OWNER),
            )
            for place, stored in self._in_order(kind)
            for metadata in [stored.object["metadata"]]
        ]

    def field_managers(self, kind: Kind, namespace: str | None, name: str) -> set[str]:
        """Managers that own a field of the object."""
        return self._find(kind, namespace, name).ownership.managers

    def set_log(
        self, namespace: str, pod: str, container: str, text: str, *, previous: bool = False
    ) -> None:
        """Let a container have written this."""
        self._logs[(namespace, pod, container, previous)] = text

    def collect_garbage(self) -> list[Object]:
        """Remove objects all of whose owners are gone, until none is left; returns the removed."""
        removed: list[Object] = []
        while orphans := self._find_orphans():
            for kind, place in orphans:
                removed.append(self._shelf(kind)[place].object)
                self.remove(kind, *place)
        return removed

    # KubeApi

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        self._before("get", kind)
        self.calls.append(Call("get", kind, namespace, name))
        return self.object(kind, namespace, name)

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Labels | None = None,
    ) -> list[Object]:
        self._before("list", kind)
        self.calls.append(Call("list", kind, namespace, None))
        if kind not in SERVED:
            raise KindMissingError(f"{kind.plural}: not served")
        return [
            stored.copied()
            for _, stored in self._in_order(kind)
            if namespace in (None, stored.object["metadata"].get("namespace"))
            and has_labels(stored.object, labels or {})
        ]

    async def list_first(
        self, selection: Selection, parts: ObjectParts, limit: int
    ) -> Sequence[Object]:
        bodies: list[Object] = []
        await self.list_pages(selection, parts, bodies.append)
        return bodies[:limit]

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], Any]
    ) -> str:
        listed = await self.list(selection.kind, selection.namespace, selection.labels)
        version = self.version
        for body in listed:
            if has_fields(body, selection.fields):
                take(parts_of(body, parts))
        return version

    async def watch(
        self, selection: Selection, parts: ObjectParts, since: str, batch_seconds: float = 0.0
    ) -> AsyncGenerator[WatchEvent, None]:
        """Nothing: listeners receive the events."""
        raise NotImplementedError("the API in memory tells its listeners, and has no watches")
        yield WatchEvent("BOOKMARK", {})  # makes it a generator

    async def apply(self, kind: Kind, body: Object) -> Object:
        return self._write("apply", kind, body, CHILD_FIELD_MANAGER)

    async def create(self, kind: Kind, body: Object) -> Object:
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": NO_VERSION}}
        return self._write("apply", kind, body, CHILD_FIELD_MANAGER)

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        return self._write("apply_status", kind, body, STATUS_FIELD_MANAGER)

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> Object | None:
        self._before("delete", kind)
        place = _place(kind, namespace, name)
        stored = self._shelf(kind).get(place)
        if stored:
            _check_preconditions(stored.object, {"uid": uid, "resourceVersion": resource_version})
            self.remove(kind, namespace, name)
        self.calls.append(Call("delete", kind, namespace, name, effective=stored is not None))
        self._after("delete", kind)
        kept = self._shelf(kind).get(place)
        return None if kept is None else kept.copied()

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> Object:
        self._before("scale", kind)
        metadata = seen["metadata"]
        live = self.object(kind, metadata["namespace"], metadata["name"])
        _check_preconditions(live, {"uid": metadata["uid"]})
        live["spec"]["replicas"] = replicas
        scaled = self.put(kind, live, CHILD_FIELD_MANAGER)
        place = metadata["namespace"], metadata["name"]
        self.calls.append(Call("scale", kind, *place, effective=True))
        self._after("scale", kind)
        return scaled

    async def create_event(self, event: Object) -> None:
        self._write("create_event", EVENTS, event, CHILD_FIELD_MANAGER)

    async def pod_log(
        self,
        namespace: str,
        pod: str,
        container: str,
        *,
        previous: bool,
        limit_bytes: int,
        timestamps: bool = False,
    ) -> str:
        """A log that a test sets has the times already, or none."""
        self._before("pod_log", PODS)
        self.calls.append(Call("pod_log", PODS, namespace, pod))
        text = self._logs.get((namespace, pod, container, previous))
        if text is None:
            raise NotFoundError(f"pod {namespace}/{pod} has no log of container {container}")
        return text.encode()[-limit_bytes:].decode(errors="replace")

    # LeaseApi

    async def get_lease(self, namespace: str, name: str) -> Object:
        return await self.get(LEASES, namespace, name)

    async def put_lease(self, lease: Object) -> Object:
        self._before("put_lease", LEASES)
        wanted = lease["metadata"]
        place = _place(LEASES, wanted["namespace"], wanted["name"])
        stored = self._shelf(LEASES).get(place)
        if (stored is None) != ("resourceVersion" not in wanted):
            raise ConflictError(f"lease {wanted['namespace']}/{wanted['name']} is not as expected")
        if stored:
            _check_preconditions(stored.object, wanted)
        answer = self.put(LEASES, lease, CHILD_FIELD_MANAGER)
        self.calls.append(Call("put_lease", LEASES, *place, effective=True))
        self._after("put_lease", LEASES)
        return answer

    # Inside

    def _write(self, verb: Verb, kind: Kind, body: Object, manager: str) -> Object:
        self._before(verb, kind)
        metadata = body["metadata"]
        place = _place(kind, metadata.get("namespace"), metadata["name"])
        stored = self._shelf(kind).get(place)
        if stored is None and verb == "apply_status":
            raise NotFoundError(f"{kind.plural} {place} not found")
        if stored is None and "uid" in metadata:
            raise ConflictError(f"{kind.plural} {place} with uid {metadata['uid']} does not exist")
        if stored:
            _check_preconditions(stored.object, metadata)
        stored = stored or _Stored({"apiVersion": kind.api_version, "kind": kind.kind})
        live = stored.fields(kind)
        wanted = {
            path: leaf
            for path, leaf in _fields(kind, _copied(body)).items()
            if (path[0] == "status") == (verb == "apply_status")
        }
        ownership = stored.ownership.copy()
        merged = ownership.apply(live, wanted, manager)
        if verb != "apply_status":
            merged = self._admit(kind, merged, metadata, is_new=not live)
        stored.ownership = ownership
        effective = self._store(kind, stored, live, merged, metadata)
        self._shelf(kind)[place] = stored
        self.calls.append(Call(verb, kind, place[0] or None, place[1], effective))
        self._after(verb, kind)
        return stored.copied()

    def _admit(
        self, kind: Kind, wanted: Fields, named: Mapping[str, Any], *, is_new: bool
    ) -> Fields:
        """The leaves as admission leaves them: what it changes changes no owner."""
        if kind == DEPLOYMENTS:
            _check_pod_template(named["name"], unflatten(wanted))
        if self.admission is None:
            return wanted
        body = unflatten(wanted)
        identity = {key: named[key] for key in ("name", "namespace") if key in named}
        body["metadata"] = identity | body.get("metadata", {})
        self.admission.admit(self, kind, body, is_new=is_new)
        return _fields(kind, body)

    def _store(
        self, kind: Kind, stored: _Stored, live: Fields, wanted: Fields, named: Mapping[str, Any]
    ) -> bool:
        """Bring the object to these leaves; only a change makes a new resourceVersion."""
        old = stored.object.get("metadata", {})
        if live == wanted and "uid" in old:
            return False
        self._version += 1
        generation = old.get("generation", 1)
        if _counted(kind, live) != _counted(kind, wanted) and "uid" in old:
            generation += 1
        identity = {
            "name": named["name"],
            **({"namespace": named["namespace"]} if kind.namespaced else {}),
            "uid": old.get("uid") or self._new_uid(),
            "resourceVersion": str(self._version),
            "generation": generation,
            "creationTimestamp": old.get("creationTimestamp")
            or self.now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = unflatten(wanted)
        body["metadata"] = identity | body.get("metadata", {})
        stored.replace({"apiVersion": kind.api_version, "kind": kind.kind} | body)
        self._tell(kind, "MODIFIED" if "uid" in old else "ADDED", stored.object)
        return True

    def _new_uid(self) -> str:
        self._uids += 1
        return f"00000000-0000-4000-8000-{self._uids:012d}"

    def _find(self, kind: Kind, namespace: str | None, name: str) -> _Stored:
        stored = self._shelf(kind).get(_place(kind, namespace, name))
        if stored is None:
            error = NotFoundError if kind in SERVED else KindMissingError
            raise error(f'{kind.plural} "{name}" not found')
        return stored

    def _shelf(self, kind: Kind) -> _Shelf:
        return self._shelves.setdefault(kind, {})

    def _in_order(self, kind: Kind) -> Sequence[tuple[_Place, _Stored]]:
        return sorted(self._shelf(kind).items(), key=itemgetter(0))

    def _find_orphans(self) -> Sequence[tuple[Kind, _Place]]:
        shelves = list(self._shelves.items())
        alive = {each.object["metadata"]["uid"] for _, shelf in shelves for each in shelf.values()}
        return [
            (kind, place)
            for kind, shelf in shelves
            for place, stored in shelf.items()
            for owners in [stored.object["metadata"].get("ownerReferences", [])]
            if owners and not any(owner["uid"] in alive for owner in owners)
        ]

    def _tell(self, kind: Kind, event_type: str, body: Object) -> None:
        for listener in self.listeners:
            listener(kind, event_type, _copied(body))

    def _before(self, verb: Verb, kind: Kind) -> None:
        self._asked += 1
        self._acts.pop(self._asked, _no_action)()
        if verb in WRITES:
            self._writes += 1
        self._raise_fault(verb, kind, after=False)

    def _after(self, verb: Verb, kind: Kind) -> None:
        self._raise_fault(verb, kind, after=True)

    def _raise_fault(self, verb: Verb, kind: Kind, *, after: bool) -> None:
        for fault in self._faults:
            if fault.after == after and fault.hits(verb, kind, self._writes, self._asked):
                self._faults.remove(fault)
                raise fault.error


def parts_of(body: Object, parts: ObjectParts) -> Object:
    """What a list shows of an object where these parts are asked for, at least."""
    return {"metadata": body["metadata"]} if parts is ObjectParts.METADATA else body


def has_fields(body: Object, selector: str) -> bool:
    """Whether the object is selected by `a.b=c` and `a.b!=c`, all of which have to be true."""
    for term in filter(None, selector.split(",")):
        path, _, wanted = term.partition("=")
        value: Any = body
        for name in path.removesuffix("!").split("."):
            value = value.get(name, "") if isinstance(value, dict) else ""
        if (value == wanted) == path.endswith("!"):
            return False
    return True


def _no_action() -> None:
    """Most calls are not interrupted."""


def _copied(body: Body) -> Body:
    # Half of a long test is copying; pickle does it several times as fast as copy.deepcopy.
    copy: Body = pickle.loads(pickle.dumps(body, pickle.HIGHEST_PROTOCOL))
    return copy


def _without_fractions(value: Any) -> Any:
    """A copy in which whole numbers stand as the API server writes them: 500000, not 500000.0."""
    match value:
        case dict():
            return {key: _without_fractions(each) for key, each in value.items()}
        case list():
            return [_without_fractions(each) for each in value]
        case float() if value.is_integer():
            return int(value)
        case _:
            return value


def _place(kind: Kind, namespace: str | None, name: str) -> _Place:
    return ((namespace or "") if kind.namespaced else "", name)


def _fields(kind: Kind, body: Object) -> Fields:
    map_lists = CUSTOM_MAP_LISTS if kind.group == GROUP else MAP_LISTS
    return {
        path: leaf for path, leaf in flatten(body, map_lists).items() if path[:2] not in IDENTITY
    }


def _check_pod_template(name: str, body: Object) -> None:
    """Refuse what no label and no key of a Secret or ConfigMap may be, as the API server does
    (apimachinery pkg/util/validation)."""
    template = (body.get("spec") or {}).get("template") or {}
    for value in ((template.get("metadata") or {}).get("labels") or {}).values():
        if not _LABEL_VALUE.fullmatch(value):
            raise InvalidError(
                f'Deployment.apps "{name}" is invalid: spec.template.labels: Invalid value:'
                f' "{value}": a valid label must be an empty string or consist of alphanumeric'
                " characters, '-', '_' or '.', and must start and end with an alphanumeric"
                " character"
            )
    for container in (template.get("spec") or {}).get("containers") or []:
        for variable in container.get("env") or []:
            for selector in (variable.get("valueFrom") or {}).values():
                key = selector.get("key")
                if key is not None and not _CONFIG_KEY.fullmatch(key):
                    raise InvalidError(
                        f'Deployment.apps "{name}" is invalid: spec.template.spec.containers.env'
                        f'.valueFrom.key: Invalid value: "{key}": a valid config key must consist'
                        " of alphanumeric characters, '-', '_' or '.'"
                    )


def _counted(kind: Kind, fields: Fields) -> Fields:
    """What makes a new generation: the spec, and of a Deployment also the annotations (kubernetes
    pkg/registry/apps/deployment/strategy.go)."""
    return {
        path: leaf
        for path, leaf in fields.items()
        if path[0] not in ("metadata", "status")
        or (kind == DEPLOYMENTS and path[:2] == ("metadata", "annotations"))
    }


def _check_preconditions(live: Object, wanted: Mapping[str, Any]) -> None:
    for name in ("uid", "resourceVersion"):
        if wanted.get(name) not in (None, live["metadata"][name]):
            raise ConflictError(
                f"{live['kind']} {live['metadata']['name']}: precondition {name} "
                f"{wanted[name]} is not {live['metadata'][name]}"
            )
