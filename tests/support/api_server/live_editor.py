"""A cluster in memory whose objects a person changes, in the place of the kubeconfig's."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.support.api_server.fake_api import FakeApi
from tonnage.cli import spec_change as changing
from tonnage.kube.protocol import ConflictError, Kind, Object


async def _nothing() -> None:
    """Only the test itself acts on a change."""


class FakeEditor:
    """What SpecEditor does, on the fake; held to the real one by the journeys of approval.

    `after` is what the rest of the cluster does when something was changed.
    """

    def __init__(self, api: FakeApi, after: Callable[[], Awaitable[None]]) -> None:
        self._api = api
        self._after = after

    async def get(self, kind: Kind, namespace: str, name: str) -> Object:
        """Read one object."""
        return await self._api.get(kind, namespace, name)

    async def change(self, kind: Kind, seen: Object, fields: Mapping[str, Any]) -> Object:
        """Merge the fields into the spec."""
        metadata = seen["metadata"]
        live = self._api.object(kind, metadata["namespace"], metadata["name"])
        if live["metadata"]["resourceVersion"] != metadata["resourceVersion"]:
            raise ConflictError("the object has been modified")
        live["spec"] = _merged(live["spec"], fields)
        stored = self._api.put(kind, live, "kubectl-tonnage")
        await self._after()
        return stored


def _merged(live: Mapping[str, Any], fields: Mapping[str, Any]) -> Object:
    """As RFC 7396 merges: maps key by key, null removes."""
    merged = {**live}
    for name, value in fields.items():
        if isinstance(value, Mapping):
            value = _merged(live.get(name) or {}, value)
        merged[name] = value
    return {name: value for name, value in merged.items() if value is not None}


def edit(
    monkeypatch: pytest.MonkeyPatch,
    api: FakeApi,
    after: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Let the commands that change an object change it in the fake."""

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[FakeEditor]:
        yield FakeEditor(api, after)

    monkeypatch.setattr(changing, "open_editor", opened)
    monkeypatch.setattr(changing, "namespace_of", lambda options: options.namespace or "chat")
