"""Full objects: spec, status and metadata without `managedFields`.

managedFields are up to half of an object, and Tonnage never reads them. msgspec skips them and
builds the rest three times as fast as Python's json builds the whole object.
"""

from typing import Any, Final, TypedDict, cast

import msgspec

from tonnage.api.names import GROUP
from tonnage.kube.json_depth import limit_depth
from tonnage.kube.partial_objects import Page, build_event, check_identity, read_error_event
from tonnage.kube.protocol import Kind, Object, TransientError, WatchEvent


class FullObjects:
    """Parses lists and watches of a kind."""

    def __init__(self, kind: Kind) -> None:
        self._plural = kind.plural
        self._may_be_deep = kind.group == GROUP  # other kinds bound the nesting
        # A list names apiVersion and kind once, not in its items.
        self._type_meta = {"apiVersion": kind.api_version, "kind": kind.kind}

    def page(self, body: bytes) -> Page:
        """Parse a page of a list. Raises TransientError."""
        text = body.decode(errors="replace")
        try:
            page = read_full_list(limit_depth(text) if self._may_be_deep else text)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self._plural}: the answer is not a list: {error}") from None
        objects = [self._type_meta | item for item in page.get("items") or []]
        for item in objects:
            check_identity(self._plural, item)
        metadata = page.get("metadata") or {}
        return Page(objects, metadata.get("continue") or "", metadata.get("resourceVersion") or "")

    def event(self, line: bytes) -> WatchEvent:
        """Parse a line of a watch. Raises TransientError: only a broken proxy sends others."""
        text = line.decode(errors="replace")
        try:
            event = _EVENTS.decode(limit_depth(text) if self._may_be_deep else text)
        except (ValueError, RecursionError):
            return read_error_event(self._plural, line)
        item = self._type_meta | cast("Object", event["object"])
        return build_event(self._plural, line, event["type"], item)


def read_full_list(text: str) -> Object:
    """Parse a list without managedFields. Raises ValueError, also for JSON that is no list."""
    return cast("Object", _LISTS.decode(text))


class _Metadata(TypedDict, total=False):
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
    metadata: _Metadata
    spec: Any
    status: Any


class _FullList(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: dict[str, Any]
    items: list[_Full] | None


class _FullEvent(TypedDict):
    type: str
    object: _Full


_EVENTS: Final = msgspec.json.Decoder(_FullEvent)
_LISTS: Final = msgspec.json.Decoder(_FullList)
