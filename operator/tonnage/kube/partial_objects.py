"""Partial objects: of Nodes and Pods the parser builds only the fields that Tonnage reads.

Most of a Node are its images and its managedFields, most of a Pod is its template. To build all of
it takes longer than all that Tonnage does with it afterwards. msgspec skips every field that is not
declared here. The result is a plain object, as a full one is.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import msgspec

from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Kind, Object, TransientError, WatchEvent
from tonnage.kube.responses import parse_object

JSON: Final = "application/json"

PARTIAL_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""Accept header for a list of metadata alone, the part of an object that no user can nest."""


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: its objects, the token of the next page, and the version of the list."""

    objects: Sequence[Object]
    token: str
    version: str


class PartialObjects:
    """Parses lists and watches of a kind: Nodes, Pods, or the metadata of any other."""

    def __init__(self, kind: Kind, fields: type | None = None) -> None:
        self._plural = kind.plural
        fields = fields or _FIELDS.get(kind, _MetadataOnly)
        # mypy accepts no variable as a type.
        self._lines = msgspec.json.Decoder(_Line[fields])  # type: ignore[valid-type]
        self._lists = msgspec.json.Decoder(_List[fields])  # type: ignore[valid-type]

    def event(self, line: bytes) -> WatchEvent:
        """Parse a line of a watch. Raises TransientError: only a broken proxy sends others."""
        try:
            event = self._lines.decode(line)
        except (ValueError, RecursionError):
            return read_error_event(self._plural, line)
        return build_event(self._plural, line, event.type, cast("Object", event.object))

    def page(self, body: bytes) -> Page:
        """Parse a page of a list. Raises TransientError."""
        try:
            page = self._lists.decode(body)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self._plural}: the answer is not a list: {error}") from None
        objects = cast("list[Object]", page.items or [])
        for item in objects:
            check_identity(self._plural, item)
        token, version = page.metadata.get("continue"), page.metadata.get("resourceVersion")
        return Page(objects, token or "", version or "")


def metadata_reader(kind: Kind) -> PartialObjects:
    """A parser of lists requested as PARTIAL_METADATA_LIST."""
    return PartialObjects(kind, _MetadataOnly)


def check_identity(what: str, item: Mapping[str, Any]) -> None:
    """Raises TransientError where an object of a list or a watch lacks its identity or version."""
    metadata = item.get("metadata") or {}
    for name in ("name", "uid", "resourceVersion"):
        if not metadata.get(name):
            raise TransientError(f"{what}: an object without metadata.{name}")


def build_event(what: str, line: bytes, event_type: str, item: Object) -> WatchEvent:
    """The event of a line. Raises TransientError where the object lacks its identity or version."""
    if event_type == "ERROR":
        return read_error_event(what, line)
    if event_type != "BOOKMARK":
        check_identity(what, item)
    elif not (item.get("metadata") or {}).get("resourceVersion"):
        raise TransientError(f"watch {what}: a bookmark without metadata.resourceVersion")
    return WatchEvent(event_type, item)


def read_error_event(what: str, line: bytes) -> WatchEvent:
    """Parse an ERROR event: its Status has other fields than the objects of the kind.

    Raises TransientError for a line that is no event.
    """
    event = parse_object(f"watch {what}", line)
    status = event.get("object")
    if event.get("type") != "ERROR" or not isinstance(status, dict):
        start = json.dumps(line[:80].decode(errors="replace"))
        raise TransientError(f"watch {what}: a line that is no event: {start}")
    return WatchEvent("ERROR", status)


# Values typed Any are not checked: their readers expect any type.


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
    creationTimestamp: Any
    labels: Any
    ownerReferences: Any
    deletionTimestamp: Any


class _Condition(TypedDict, total=False):
    type: Any
    status: Any


class _NodeInfo(TypedDict, total=False):
    operatingSystem: Any


class _NodeSpec(TypedDict, total=False):
    taints: Any
    unschedulable: Any


class _NodeStatus(TypedDict, total=False):
    capacity: Any
    allocatable: Any
    conditions: list[_Condition] | None
    nodeInfo: _NodeInfo


class _Node(TypedDict, total=False):
    """What `fleet.node` reads."""

    metadata: _Metadata
    spec: _NodeSpec
    status: _NodeStatus


class _Container(TypedDict, total=False):
    resources: Any
    restartPolicy: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    containers: list[_Container] | None
    initContainers: list[_Container] | None


class _PodStatus(TypedDict, total=False):
    phase: Any
    podIP: Any
    conditions: Any
    containerStatuses: Any


class _Pod(TypedDict, total=False):
    """What `fleet.pod` and `reconcile.children` read, and the owner."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _MetadataOnly(TypedDict, total=False):
    """The identity and the version."""

    metadata: _Metadata


_FIELDS: Final[Mapping[Kind, type]] = {NODES: _Node, PODS: _Pod}

_Fields = TypeVar("_Fields")


class _Line(msgspec.Struct, Generic[_Fields]):
    type: str
    object: _Fields


_ListMetadata = TypedDict("_ListMetadata", {"continue": str, "resourceVersion": str}, total=False)


class _List(msgspec.Struct, Generic[_Fields]):
    metadata: _ListMetadata
    items: list[_Fields] | None = None
