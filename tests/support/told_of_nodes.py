"""A server that tells of nodes when a test says so, and what was heard of them."""

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web
from aiohttp.client_proto import ResponseHandler
from aiohttp.test_utils import RawTestServer
from kubernetes.aio.client import ApiClient, Configuration

from tests.support.fleet_objects import node
from tonnage.kube.gathering import Gathering
from tonnage.kube.kinds import NODES
from tonnage.kube.protocol import Kind
from tonnage.kube.transport import Transport
from tonnage.kube.watching import Selection, WatchApi

ARRIVES_SECONDS = 0.05
"""What is sent on loopback is there by then, and read where anybody reads."""


@dataclass(frozen=True)
class Certificate:
    """Of a server on loopback; it is its own CA."""

    chain: Path
    key: Path

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.chain, self.key)
        return context


class Told:
    """Tells and hears."""

    def __init__(self, gathering: Gathering) -> None:
        self.gathering = gathering
        self.heard: list[str] = []
        self.all_heard = asyncio.Event()
        self.received = 0
        self._news: asyncio.Queue[list[str]] = asyncio.Queue()

    async def tell(self, *names: str) -> None:
        """All in one piece; what is sent has arrived."""
        self._news.put_nowait(list(names))
        await asyncio.sleep(ARRIVES_SECONDS)

    async def answer(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        while names := await self._news.get():
            await answer.write(b"".join(map(_line, names)))
        return answer

    async def follow(self, api: WatchApi, kind: Kind) -> None:
        async for event in api.events(Selection(kind), "5"):
            self.heard.append(event.object["metadata"]["name"])
            if self.heard[-1] == "b":
                self.all_heard.set()


def _line(name: str) -> bytes:
    found = node(name)
    found["metadata"]["resourceVersion"] = "6"
    return json.dumps({"type": "MODIFIED", "object": found}).encode() + b"\n"


@asynccontextmanager
async def following(
    monkeypatch: pytest.MonkeyPatch,
    gathering: Gathering,
    kind: Kind = NODES,
    certificate: Certificate | None = None,
) -> AsyncIterator[Told]:
    """A watch of the server; over TLS, where there is a certificate for it."""
    told, receive = Told(gathering), ResponseHandler.data_received

    def note(self: ResponseHandler, data: bytes) -> None:
        told.received += 1
        receive(self, data)

    monkeypatch.setattr(ResponseHandler, "data_received", note)
    configuration = Configuration()
    server = RawTestServer(told.answer, scheme="https" if certificate else "http")
    await server.start_server(ssl=certificate and certificate.context)
    configuration.host = str(server.make_url(""))
    configuration.ssl_ca_cert = certificate and str(certificate.chain)
    async with (
        server,
        ApiClient(configuration) as client,
        asyncio.timeout(20),
        asyncio.TaskGroup() as group,
    ):
        api = WatchApi(Transport(client, lambda *_: None), gathering)
        group.create_task(told.follow(api, kind))
        yield told
        await told.tell()
        await gathering.attend()
