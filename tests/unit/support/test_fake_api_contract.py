"""The fake API server keeps the contract that the real one keeps."""

import pytest

from tests.support.api_server.api_contract import ApiContract
from tests.support.api_server.contract_world import World
from tests.support.api_server.fake_api import FakeApi
from tonnage.kube.protocol import Kind, Object


class _User:
    def __init__(self, api: FakeApi) -> None:
        self._api = api

    async def put(self, kind: Kind, body: Object) -> Object:
        return self._api.put(kind, body)

    async def remove(self, kind: Kind, namespace: str, name: str) -> None:
        self._api.remove(kind, namespace, name)


class TestFakeApi(ApiContract):
    @pytest.fixture
    def world(self) -> World:
        api = FakeApi()
        return World(api, api, _User(api), "chat")
