"""Partial objects: of Nodes and Pods only the fields that Tonnage reads are built.

Most of a Node are its images and its managedFields, most of a Pod is its template. Building all of
it takes longer than anything that is done with it afterwards. msgspec skips every field that is not
declared here. The result is a plain object, as a full one is.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import msgspec

from tonnage.kube.answers import parse_object
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Kind, Object, TransientError, WatchEvent

JSON: Final = "application/json"

PARTIAL_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""As an Accept: a list of metadata alone, which is all of an object that no user can nest."""


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: its objects, the token of the next part, and the version of the whole."""

    objects: Sequence[Object]
    token: str
    version: str


class PartialObjects:
    """Reads lists and watches of a kind: Nodes, Pods, or the metadata of any other."""

    def __init__(self, kind: Kind, parts: type | None = None) -> None:
        self._what = kind.plural
        parts = parts or _PARTS.get(kind, _MetadataOnly)
        # mypy takes a type in a variable for none.
        self._lines = msgspec.json.Decoder(_Line[parts])  # type: ignore[valid-type]
        self._lists = msgspec.json.Decoder(_List[parts])  # type: ignore[valid-type]

    def event(self, line: bytes) -> WatchEvent:
        """A line of a watch. Raises TransientError: only a broken proxy tells anything else."""
        try:
            event = self._lines.decode(line)
        except (ValueError, RecursionError):
            return read_error_event(self._what, line)
        return checked_event(self._what, line, event.type, cast("Object", event.object))

    def page(self, body: bytes) -> Page:
        """A part of a list. Raises TransientError."""
        try:
            page = self._lists.decode(body)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self._what}: the answer is not a list: {error}") from None
        objects = cast("list[Object]", page.items or [])
        for item in objects:
            check_identity(self._what, item)
        token, version = page.metadata.get("continue"), page.metadata.get("resourceVersion")
        return Page(objects, token or "", version or "")


def read_metadata(kind: Kind) -> PartialObjects:
    """A reader of lists that are asked for as PARTIAL_METADATA_LIST."""
    return PartialObjects(kind, _MetadataOnly)


def check_identity(what: str, item: Mapping[str, Any]) -> None:
    """Raises TransientError where an object of a list or a watch does not say which one it is, and
    in which version."""
    metadata = item.get("metadata") or {}
    for name in ("name", "uid", "resourceVersion"):
        if not metadata.get(name):
            raise TransientError(f"{what}: an object without metadata.{name}")


def checked_event(what: str, line: bytes, event_type: str, item: Object) -> WatchEvent:
    """The event of a line, with an object that says which one it is and in which version.

    Raises TransientError.
    """
    if event_type == "ERROR":
        return read_error_event(what, line)
    if event_type != "BOOKMARK":
        check_identity(what, item)
    elif not (item.get("metadata") or {}).get("resourceVersion"):
        raise TransientError(f"watch {what}: a bookmark without metadata.resourceVersion")
    return WatchEvent(event_type, item)


def read_error_event(what: str, line: bytes) -> WatchEvent:
    """An ERROR event: its Status has other fields than the objects of the kind.

    Raises TransientError for a line that is no event.
    """
    event = parse_object(f"watch {what}", line)
    status = event.get("object")
    if event.get("type") != "ERROR" or not isinstance(status, dict):
        start = json.dumps(line[:80].decode(errors="replace"))
        raise TransientError(f"watch {what}: a line that is no event: {start}")
    return WatchEvent("ERROR", status)


# Values typed Any are taken as they are: whoever reads them expects anything.


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
    """What `fleet.pod` and `reconcile.children` read, and whose it is."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _MetadataOnly(TypedDict, total=False):
    """The identity and the version."""

    metadata: _Metadata


_PARTS: Final[Mapping[Kind, type]] = {NODES: _Node, PODS: _Pod}

_Parts = TypeVar("_Parts")


class _Line(msgspec.Struct, Generic[_Parts]):
    type: str
    object: _Parts


_ListMetadata = TypedDict("_ListMetadata", {"continue": str, "resourceVersion": str}, total=False)


class _List(msgspec.Struct, Generic[_Parts]):
    metadata: _ListMetadata
    items: list[_Parts] | None = None
