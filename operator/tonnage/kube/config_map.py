"""One ConfigMap whose entries have several writers: each is changed by itself.

A merge patch names the entries that it changes and no other. Server-side apply would take those
away that a later apply leaves out, and would come to own those of others that it repeats.
"""

from collections.abc import Mapping
from typing import Final, Protocol

from tonnage import delays
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import Gate, Object
from tonnage.kube.transport import MERGE_PATCH, Request, Transport

ENTRIES_FIELD_MANAGER: Final = "tonnage-corrections"


class ConfigMapApi(Protocol):
    """One ConfigMap; the same errors as KubeApi."""

    async def read(self) -> Object:
        """It as it is now. Raises NotFoundError."""
        ...

    async def change(self, seen: Object | None, entries: Mapping[str, str | None]) -> Object:
        """Set these entries, None takes one away; `seen` is the ConfigMap as it was read, None
        where there was none. Raises ConflictError when it is another one by now."""
        ...


class AioConfigMapApi:
    """ConfigMapApi of one API server; every write asks the gate first."""

    def __init__(
        self,
        transport: Transport,
        namespace: str,
        name: str,
        before_write: Gate,
        *,
        timeout_seconds: float = delays.CONFIG_MAP_TIMEOUT,
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._name = name
        self._before_write = before_write
        self._timeout_seconds = timeout_seconds

    async def read(self) -> Object:
        """It as it is now. Raises NotFoundError."""
        request = Request("get", "GET", CONFIG_MAPS, self._namespace, self._name)
        return await self._transport.fetch_object(request, self._timeout_seconds)

    async def change(self, seen: Object | None, entries: Mapping[str, str | None]) -> Object:
        """Set these entries. Raises ConflictError."""
        seconds = min(self._timeout_seconds, self._before_write())
        request = self._create(entries) if seen is None else self._patch(seen, entries)
        return await self._transport.fetch_object(request, seconds)

    def _create(self, entries: Mapping[str, str | None]) -> Request:
        body: Object = {
            "apiVersion": CONFIG_MAPS.api_version,
            "kind": CONFIG_MAPS.kind,
            "metadata": {"name": self._name, "namespace": self._namespace},
            "data": {name: text for name, text in entries.items() if text is not None},
        }
        query = (("fieldManager", ENTRIES_FIELD_MANAGER),)
        return Request("create", "POST", CONFIG_MAPS, self._namespace, None, query=query, body=body)

    def _patch(self, seen: Object, entries: Mapping[str, str | None]) -> Request:
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
