"""Objects of lists and watches, parsed into the parts of them that Tonnage reads.

To build all of a large object takes longer than all that Tonnage does with it afterwards. msgspec
skips every field that is not declared here. The result is a plain object.

- Partial objects: most of a Node are its images and its managedFields, most of a Pod its template.
- Full objects: managedFields are up to half of an object, and Tonnage never reads them.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypedDict, TypeVar, cast

import msgspec

from tonnage.api.names import GROUP
from tonnage.kube.json_depth import limit_depth
from tonnage.kube.kinds import EVENTS, NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tonnage.kube.protocol import Kind, Object, ObjectParts, TransientError, WatchEvent
from tonnage.kube.responses import parse_object


@dataclass(frozen=True, slots=True)
class Page:
    """A page of a list: its objects, the token of the next page, and the version of the list."""

    objects: Sequence[Object]
    token: str
    version: str


class ObjectParser:
    """Parses lists and watches of a kind into these parts of its objects."""

    def __init__(self, kind: Kind, parts: ObjectParts) -> None:
        self._plural = kind.plural
        self._is_full = parts is ObjectParts.FULL
        self._may_be_deep = self._is_full and kind.group == GROUP  # other kinds bound the nesting
        # A list names apiVersion and kind once, not in its items.
        self._type_meta = (
            {"apiVersion": kind.api_version, "kind": kind.kind} if self._is_full else {}
        )
        fields = _fields_of(kind, parts)
        # mypy accepts no variable as a type.
        self._lines = msgspec.json.Decoder(_Line[fields])  # type: ignore[valid-type]
        self._lists = msgspec.json.Decoder(_List[fields])  # type: ignore[valid-type]

    def page(self, body: bytes) -> Page:
        """Parse a page of a list. Raises TransientError."""
        try:
            page = self._lists.decode(self._readable(body))
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self._plural}: the answer is not a list: {error}") from None
        objects = [self._with_type(item) for item in page.items or []]
        for item in objects:
            _check_identity(self._plural, item)
        token, version = page.metadata.get("continue"), page.metadata.get("resourceVersion")
        return Page(objects, token or "", version or "")

    def event(self, line: bytes) -> WatchEvent:
        """Parse a line of a watch. Raises TransientError: only a broken proxy sends others."""
        try:
            event = self._lines.decode(self._readable(line))
        except (ValueError, RecursionError):
            return _read_error_event(self._plural, line)
        if event.type == "ERROR":
            return _read_error_event(self._plural, line)
        item = self._with_type(event.object)
        if event.type != "BOOKMARK":
            _check_identity(self._plural, item)
        elif not (item.get("metadata") or {}).get("resourceVersion"):
            raise TransientError(
                f"watch {self._plural}: a bookmark without metadata.resourceVersion"
            )
        return WatchEvent(event.type, item)

    def _readable(self, body: bytes) -> bytes | str:
        if not self._is_full:
            return body
        text = body.decode(errors="replace")
        return limit_depth(text) if self._may_be_deep else text

    def _with_type(self, item: object) -> Object:
        fields = cast("Object", item)
        return self._type_meta | fields if self._is_full else fields


def _check_identity(what: str, item: Mapping[str, Any]) -> None:
    """Raises TransientError where an object of a list or a watch lacks its identity or version."""
    metadata = item.get("metadata") or {}
    for name in ("name", "uid", "resourceVersion"):
        if not metadata.get(name):
            raise TransientError(f"{what}: an object without metadata.{name}")


def _read_error_event(what: str, line: bytes) -> WatchEvent:
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


class _Variable(TypedDict, total=False):
    name: Any
    value: Any


class _Mount(TypedDict, total=False):
    name: Any


class _InitContainer(_Container, total=False):
    """The one that keeps weights on the disk of the node says by its environment which."""

    name: Any
    env: list[_Variable] | None
    volumeMounts: list[_Mount] | None


class _Volume(TypedDict, total=False):
    name: Any
    hostPath: Any


class _PodSpec(TypedDict, total=False):
    nodeName: Any
    containers: list[_Container] | None
    initContainers: list[_InitContainer] | None
    volumes: list[_Volume] | None
    resources: Any
    overhead: Any
    resourceClaims: Any
    schedulerName: Any


class _PodStatus(TypedDict, total=False):
    phase: Any
    podIP: Any
    reason: Any
    message: Any
    conditions: Any
    containerStatuses: Any
    initContainerStatuses: Any


class _Pod(TypedDict, total=False):
    """What `fleet.pod` and `reconcile.children` read, and the owner."""

    metadata: _Metadata
    spec: _PodSpec
    status: _PodStatus


class _Device(TypedDict, total=False):
    name: Any
    nodeName: Any
    attributes: Any
    capacity: Any
    taints: Any
    consumesCounters: Any


class _SliceSpec(TypedDict, total=False):
    driver: Any
    pool: Any
    nodeName: Any
    perDeviceNodeSelection: Any
    devices: list[_Device] | None


class _ResourceSlice(TypedDict, total=False):
    """What `fleet.dra.read` reads of a ResourceSlice."""

    metadata: _Metadata
    spec: _SliceSpec


class _Result(TypedDict, total=False):
    driver: Any
    pool: Any
    device: Any
    adminAccess: Any


class _DeviceAllocation(TypedDict, total=False):
    results: list[_Result] | None


class _Allocation(TypedDict, total=False):
    devices: _DeviceAllocation | None


class _ClaimStatus(TypedDict, total=False):
    allocation: _Allocation | None
    reservedFor: Any


class _ResourceClaim(TypedDict, total=False):
    """What `fleet.dra.read` reads of a ResourceClaim."""

    metadata: _Metadata
    status: _ClaimStatus


class _Event(TypedDict, total=False):
    """What `reconcile.observation.pods.reports` reads of an events.k8s.io/v1 Event."""

    metadata: _Metadata
    type: Any
    reason: Any
    note: Any
    series: Any
    eventTime: Any
    deprecatedLastTimestamp: Any


class _MetadataOnly(TypedDict, total=False):
    """The identity and the version."""

    metadata: _Metadata


class _FullMetadata(TypedDict, total=False):
    """All of an ObjectMeta (apimachinery pkg/apis/meta/v1/types.go of 1.35) but `managedFields`."""

    name: str
    generateName: Any
    namespace: str
    selfLink: Any
    uid: str
    resourceVersion: str
    generation: Any
    creationTimestamp: Any
    deletionTimestamp: Any
    deletionGracePeriodSeconds: Any
    labels: Any
    annotations: Any
    ownerReferences: Any
    finalizers: Any


class _Full(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: _FullMetadata
    spec: Any
    status: Any


def _fields_of(kind: Kind, parts: ObjectParts) -> type:
    match parts:
        case ObjectParts.FULL:
            return _Full
        case ObjectParts.PARTIAL:
            return _PARTIAL_FIELDS[kind]
        case ObjectParts.METADATA:
            return _MetadataOnly


_PARTIAL_FIELDS: Final[Mapping[Kind, type]] = {
    EVENTS: _Event,
    NODES: _Node,
    PODS: _Pod,
    RESOURCE_CLAIMS: _ResourceClaim,
    RESOURCE_SLICES: _ResourceSlice,
}

_Fields = TypeVar("_Fields")


class _Line(msgspec.Struct, Generic[_Fields]):
    type: str
    object: _Fields


_ListMetadata = TypedDict("_ListMetadata", {"continue": str, "resourceVersion": str}, total=False)


class _List(msgspec.Struct, Generic[_Fields]):
    metadata: _ListMetadata
    items: list[_Fields] | None = None
