"""One ConfigMap whose entries have several writers, each of whom changes single entries.

A merge patch names only the entries that it changes. Server-side apply would remove entries that a
later apply leaves out, and would take over entries of other writers that it repeats.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from tonnage import delays
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import Object, WriteGate
from tonnage.kube.transport import MERGE_PATCH, Request, Transport

ENTRIES_FIELD_MANAGER: Final = "tonnage-corrections"


class ConfigMapApi(Protocol):
    """One ConfigMap; the same errors as KubeApi."""

    async def read(self) -> Object:
        """Read the ConfigMap live. Raises NotFoundError."""
        ...

    async def change(self, seen: Object | None, entries: Mapping[str, str | None]) -> Object:
        """Set these entries; None removes one. `seen` is the ConfigMap as it was read, None where
        there was none. Raises ConflictError when it has changed since."""
        ...


class AioConfigMapApi:
    """ConfigMapApi of one API server; every write calls the gate first."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        name: str,
        before_write: WriteGate,
        *,
        timeout_seconds: float = delays.CONFIG_MAP_TIMEOUT,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._before_write = before_write
        self._timeout_seconds = timeout_seconds

    async def read(self) -> Object:
        """Read the ConfigMap live. Raises NotFoundError."""
        request = Request("get", "GET", CONFIG_MAPS, self._namespace, self._name)
        return await self._transport.fetch_object(request, self._timeout_seconds)

    async def change(self, seen: Object | None, entries: Mapping[str, str | None]) -> Object:
        """Set these entries. Raises ConflictError."""
        seconds = min(self._timeout_seconds, self._before_write())
        if seen is None:
            request = self._create_request(entries)
        else:
            request = self._patch_request(seen, entries)
        return await self._transport.fetch_object(request, seconds)

    def _create_request(self, entries: Mapping[str, str | None]) -> Request:
        body: Object = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {name: text for name, text in entries.items() if text is not None},
        }
        query = (("fieldManager", ENTRIES_FIELD_MANAGER),)
        return Request("create", "POST", CONFIG_MAPS, self._namespace, None, query=query, body=body)

    def _patch_request(self, seen: Object, entries: Mapping[str, str | None]) -> Request:
        version = seen["metadata"]["resourceVersion"]
        return Request(
            "patch",
            "PATCH",
            CONFIG_MAPS,
            self._namespace,
            self._name,
            query=(("fieldManager", ENTRIES_FIELD_MANAGER),),
            body={"metadata": {"resourceVersion": version}, "data": dict(entries)},
            content_type=MERGE_PATCH,
        )
