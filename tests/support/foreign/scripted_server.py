"""An HTTP server that gives prepared answers in order, and remembers what it was asked."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server says; a silent one says it when the test is over."""

    status: int = 200
    body: Any = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    silent: bool = False


@dataclass(frozen=True, slots=True)
class ReceivedRequest:
    """One request."""

    method: str
    path: str
    query: dict[str, str]
    content_type: str
    encodings: str
    accept: str
    body: Any


class ScriptedServer:
    """Serves one answer a request; the last one for ever."""

    def __init__(self, *answers: Answer) -> None:
        self._answers = list(answers)
        self.asked: list[ReceivedRequest] = []
        self.url = ""
        self.over = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        text = await request.text()
        # An API server takes the first of several, and ignores the rest.
        repeated = [each for each in set(request.query) if len(request.query.getall(each)) > 1]
        assert not repeated, f"query parameters that are there twice: {repeated}"
        self.asked.append(
            ReceivedRequest(
                request.method,
                request.rel_url.raw_path,
                dict(request.query),
                request.content_type,
                request.headers.get("Accept-Encoding", ""),
                request.headers.get("Accept", ""),
                json.loads(text) if text else None,
            )
        )
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if answer.silent:
            await self.over.wait()
        body = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body).encode()
        return web.Response(status=answer.status, body=body, headers=answer.headers)


@asynccontextmanager
async def serving(*answers: Answer) -> AsyncIterator[ScriptedServer]:
    server = ScriptedServer(*answers)
    runner = web.ServerRunner(web.Server(server.handle), shutdown_timeout=0)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        server.url = f"http://{host}:{port}"
        yield server
    finally:
        server.over.set()
        await runner.cleanup()
