"""The client against a real API server: the contract that the fake keeps too."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from e2e.harness.stack import Stack
from tests.support.api_server.api_contract import ApiContract
from tests.support.api_server.contract_world import World, config_map, version
from tonnage.kube import client
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.connection import connect
from tonnage.kube.kinds import CONFIG_MAPS
from tonnage.kube.protocol import Kind, NotFoundError, Object, ObjectParts, Selection
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Request, Transport

NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
TIMEOUT_SECONDS = 120.0
"""Nothing takes so long but on a machine with far more to do than it has cores."""


class _User:
    """kubectl create, kubectl replace and kubectl delete."""

    def __init__(self, api: AioKubeApi, transport: Transport) -> None:
        self._api = api
        self._transport = transport

    async def put(self, kind: Kind, body: Object) -> Object:
        metadata = body["metadata"]
        namespace, name = metadata.get("namespace"), metadata["name"]
        try:
            live = await self._api.get(kind, namespace, name)
        except NotFoundError:
            create = Request("create", "POST", kind, namespace, None, body=body)
            return await self._transport.fetch_object(create, TIMEOUT_SECONDS)
        version = {"resourceVersion": live["metadata"]["resourceVersion"]}
        body = body | {"metadata": metadata | version}
        return await self._transport.fetch_object(
            Request("update", "PUT", kind, namespace, name, body=body), TIMEOUT_SECONDS
        )

    async def remove(self, kind: Kind, namespace: str, name: str) -> None:
        delete = Request("delete", "DELETE", kind, namespace, name)
        await self._transport.fetch_object(delete, TIMEOUT_SECONDS)


@pytest.mark.usefixtures("_installed")
class TestRealApiServer(ApiContract):
    @pytest.fixture
    async def world(self, control_plane: Stack) -> AsyncIterator[World]:
        async with connect(str(control_plane.kubeconfig)) as connection:
            transport = Transport(connection.client, lambda *_: None)
            api = AioKubeApi(transport, before_write=lambda: 30.0, bucket=TokenBucket(1000, 1000))
            namespace = f"contract-{uuid.uuid4().hex[:8]}"
            await api.apply(
                NAMESPACES,
                {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
            )
            leases = AioLeaseApi(transport, timeout_seconds=TIMEOUT_SECONDS)
            yield World(api, leases, _User(api, transport), namespace)

    async def test_each_object_of_many_pages_is_passed_on_once(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(client, "FULL_PAGE_SIZE", 1)
        names = ["a", "b", "c", "d"]
        for name in names:
            body = config_map(world, name, a="1")
            body["metadata"]["labels"] = {"team": "chat"}
            await world.api.apply(CONFIG_MAPS, body)
        listed: list[str] = []
        selection = Selection(CONFIG_MAPS, world.namespace, {"team": "chat"})
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await world.api.list_pages(
                selection, ObjectParts.FULL, lambda each: listed.append(each["metadata"]["name"])
            )
        assert listed == names

    @pytest.mark.parametrize("how", ["deleted", "not selected any more"])
    async def test_a_deletion_event_has_a_newer_version_than_the_object(
        self, world: World, how: str
    ) -> None:
        """So a store can tell late news of the object from its return to the selection."""
        selection = Selection(CONFIG_MAPS, world.namespace, {"team": "chat"})
        live = await world.api.apply(CONFIG_MAPS, config_map(world, a="1"))
        if how == "deleted":
            await world.user.remove(CONFIG_MAPS, world.namespace, "facts")
        else:
            other = config_map(world, a="1")
            other["metadata"]["labels"] = {"team": "code"}
            after = await world.api.apply(CONFIG_MAPS, other)
        watch = world.api.watch(selection, ObjectParts.FULL, version(live))
        async with asyncio.timeout(TIMEOUT_SECONDS), aclosing(watch) as events:
            event = await anext(events)
        assert (event.type, event.object["metadata"]["uid"]) == ("DELETED", live["metadata"]["uid"])
        assert int(version(event.object)) > int(version(live))
        if how != "deleted":
            assert version(event.object) == version(after)
