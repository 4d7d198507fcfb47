"""Lists of objects that have a spec and a status, whole but for who manages which of their fields.

Those are up to half of an object, and nobody who lists many objects reads them. msgspec goes over
them, and builds the rest three times as fast as Python's json builds all.
"""

from typing import Any, Final, TypedDict, cast

import msgspec

from tonnage.api.names import GROUP
from tonnage.kube.depth import cut_deep
from tonnage.kube.lean import Page, check_identity
from tonnage.kube.protocol import Kind, Object, TransientError


class WholeReader:
    """Reads the lists of a kind."""

    def __init__(self, kind: Kind) -> None:
        self._what = kind.plural
        self._is_ours = kind.group == GROUP  # in other kinds nobody can nest what they like
        # A list names apiVersion and kind once, not in its items.
        self._named = {"apiVersion": kind.api_version, "kind": kind.kind}

    def page(self, body: bytes) -> Page:
        """A part of a list. Raises TransientError."""
        text = body.decode(errors="replace")
        try:
            found = read_whole_list(cut_deep(text) if self._is_ours else text)
        except (ValueError, RecursionError) as error:
            raise TransientError(f"{self._what}: the answer is not a list: {error}") from None
        objects = [self._named | item for item in found.get("items") or []]
        for one in objects:
            check_identity(self._what, one)
        metadata = found.get("metadata") or {}
        return Page(objects, metadata.get("continue") or "", metadata.get("resourceVersion") or "")


def read_whole_list(text: str) -> Object:
    """The list, its items without their managers. Raises ValueError, also for what is no list."""
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


class _Whole(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: _Metadata
    spec: Any
    status: Any


class _WholeList(TypedDict, total=False):
    apiVersion: Any
    kind: Any
    metadata: dict[str, Any]
    items: list[_Whole] | None


_LISTS: Final = msgspec.json.Decoder(_WholeList)
