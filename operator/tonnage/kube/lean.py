"""Of what the API server tells of a kind, only the parts that somebody here looks at are built.

Most of a Node are its images and the fields of its managers, most of a Pod is its template: to
build all of it takes longer than what is done with it afterwards, and leaves garbage of many times
its size. msgspec goes over whatever is not declared here. What it builds are plain objects, as
whole ones are, so that nobody needs to know how they were read.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import msgspec

from tonnage.kube.answers import parse_object
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Kind, Object, TransientError

JSON: Final = "application/json"

PARTIAL_METADATA_LIST: Final = f"{JSON};as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
"""As an Accept: a list of metadata alone, which is all of an object that no user can nest."""


@dataclass(frozen=True, slots=True)
class Event:
    """What a watch told: its type as on the wire, and the object; that of an ERROR is a Status."""

    type: str
    object: Object


@dataclass(frozen=True, slots=True)
class Page:
    """A part of a list: its objects, the token of the next part, and the version of the whole."""

    objects: Sequence[Object]
    token: str
    version: str


class LeanReader:
    """Reads what the API server tells of a kind: Nodes, Pods, or the metadata of others."""

    def __init__(self, kind: Kind, parts: type | None = None) -> None:
        self._what = kind.plural
        parts = parts or _PARTS.get(kind, _MetadataOnly)
        # mypy takes a type in a variable for none.
        self._lines = msgspec.json.Decoder(_Line[parts])  # type: ignore[valid-type]
        self._lists = msgspec.json.Decoder(_List[parts])  # type: ignore[valid-type]

    def event(self, line: bytes) -> Event:
        """A line of a watch. Raises TransientError: only a broken proxy tells anything else."""
        try:
            told = self._lines.decode(line)
        except (ValueError, RecursionError):
            return self._error(line)
        found = cast("Object", told.object)
        if told.type == "ERROR":
            return self._error(line)
        if told.type != "BOOKMARK":
            check_identity(self._what, found)
        if not (found.get("metadata") or {}).get("resourceVersion"):
            raise TransientError(f"watch {self._what}: an object without metadata.resourceVersion")
        return Event(told.type, found)

    def page(self, body: bytes) -> Page:
        """A part of a list. Raises TransientError."""
        try:
            found = self._lists.decode(body)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self._what}: the answer is not a list: {error}") from None
        objects = cast("list[Object]", found.items or [])
        for each in objects:
            check_identity(self._what, each)
        token, version = found.metadata.get("continue"), found.metadata.get("resourceVersion")
        return Page(objects, token or "", version or "")

    def _error(self, line: bytes) -> Event:
        """A Status has other parts than the objects that are expected."""
        event = parse_object(f"watch {self._what}", line)
        status = event.get("object")
        if event.get("type") != "ERROR" or not isinstance(status, dict):
            start = json.dumps(line[:80].decode(errors="replace"))
            raise TransientError(f"watch {self._what}: a line that is no event: {start}")
        return Event("ERROR", status)


def read_metadata(kind: Kind) -> LeanReader:
    """A reader of lists that are asked for as PARTIAL_METADATA_LIST."""
    return LeanReader(kind, _MetadataOnly)


def check_identity(what: str, found: Mapping[str, Any]) -> None:
    """Raises TransientError where an object of a list or a watch does not say which one it is."""
    metadata = found.get("metadata") or {}
    if not (metadata.get("name") and metadata.get("uid")):
        raise TransientError(f"{what}: an object without metadata.name or metadata.uid")


# Values that only we look at closer are taken as they are: who reads them expects anything.


class _Metadata(TypedDict, total=False):
    name: str
    namespace: str
    uid: str
    resourceVersion: str
    generation: int
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


class _Pod(TypedDict, total=False):
    """What `fleet.pod` reads, and whose it is."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _MetadataOnly(TypedDict, total=False):
    """Whose it is, and in which version."""

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
