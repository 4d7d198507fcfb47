"""Changes single fields of objects that have other writers, by merge patches.

A merge patch names only the fields that it changes. Server-side apply would remove fields that a
later apply leaves out, and would take over fields of other writers that it repeats. Each change is
conditional on the version that was read.
"""

from collections.abc import Mapping
from typing import Any, Final

from tonnage import delays
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import Kind, Object, WriteGate
from tonnage.kube.transport import MERGE_PATCH, Query, Request, Transport

EDIT_FIELD_MANAGER: Final = "kubectl-tonnage"
ENTRIES_FIELD_MANAGER: Final = "tonnage-corrections"


class SpecEditor:
    """Changes specs for a person, with that person's credentials: the operator itself writes to no
    object of a user."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Read one object live. Raises NotFoundError."""
        request = Request("get", "GET", kind, namespace, name)
        return await self._transport.fetch_object(request, delays.REQUEST_TIMEOUT)

    async def change(self, kind: Kind, seen: Object, fields: Mapping[str, Any]) -> Object:
        """Merge the fields into the spec; None removes a field. The API server refuses a field that
        it does not know, instead of dropping it.

        `seen` is the object as it was read. Raises ConflictError when it has changed since.
        """
        query = (("fieldManager", EDIT_FIELD_MANAGER), ("fieldValidation", "Strict"))
        request = _patch_request(kind, seen, {"spec": dict(fields)}, query)
        return await self._transport.fetch_object(request, delays.REQUEST_TIMEOUT)


class ConfigMapEntries:
    """The entries of one ConfigMap; every write calls the gate first."""

    def __init__(
        self, transport: Transport, namespace: str, name: str, before_write: WriteGate
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._before_write = before_write

    async def read(self) -> Object:
        """Read the ConfigMap live. Raises NotFoundError."""
        request = Request("get", "GET", CONFIG_MAPS, self._namespace, self._name)
        return await self._transport.fetch_object(request, delays.CONFIG_MAP_TIMEOUT)

    async def change(self, seen: Object | None, entries: Mapping[str, str | None]) -> Object:
        """Set these entries; None removes one. `seen` is the ConfigMap as it was read, None where
        there was none. Raises ConflictError when it has changed since."""
        seconds = min(delays.CONFIG_MAP_TIMEOUT, self._before_write())
        query = (("fieldManager", ENTRIES_FIELD_MANAGER),)
        if seen is None:
            request = self._create_request(entries, query)
        else:
            request = _patch_request(CONFIG_MAPS, seen, {"data": dict(entries)}, query)
        return await self._transport.fetch_object(request, seconds)

    def _create_request(self, entries: Mapping[str, str | None], query: Query) -> Request:
        body: Object = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {name: text for name, text in entries.items() if text is not None},
        }
        return Request("create", "POST", CONFIG_MAPS, self._namespace, None, query=query, body=body)


def _patch_request(kind: Kind, seen: Object, fields: Object, query: Query) -> Request:
    """A merge patch that conflicts where the object is no longer the one that was `seen`."""
    metadata = seen["metadata"]
    return Request(
        "patch",
        "PATCH",
        kind,
        metadata["namespace"],
        metadata["name"],
        query=query,
        body={"metadata": {"resourceVersion": metadata["resourceVersion"]}, **fields},
        content_type=MERGE_PATCH,
    )
