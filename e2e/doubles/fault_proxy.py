"""A proxy between an operator and the API server that injects faults: errors, delays, silence.

It stands where a load balancer does, speaks plain HTTP like `kubectl proxy`, and streams watches
through. `calls` has all requests, also those that never reached the API server.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import ClientError, ClientResponse, ClientSession, ClientTimeout, TCPConnector, web
from yarl import URL

from e2e.harness.rest import Access

_HOP_BY_HOP = {"connection", "content-length", "host", "keep-alive", "transfer-encoding"}
_START_TIMEOUT = 10.0
_READS = {"GET", "HEAD", "OPTIONS"}

Answer = TypeVar("Answer")
Forward = Callable[[], Awaitable[web.StreamResponse]]
Effect = Callable[[Forward], Awaitable[web.StreamResponse]]
"""What becomes of a call: it may forward it, at any time, or not."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the operator, and when it came, in monotonic seconds."""

    at: float
    method: str
    path: str
    is_watch: bool

    @property
    def is_write(self) -> bool:
        """Whether it would change anything."""
        return self.method not in _READS

    @property
    def is_lease(self) -> bool:
        """Whether it is about leadership."""
        return "/leases" in self.path


Where = Callable[[Call], bool]


def all_calls(_: Call) -> bool:
    """Each call."""
    return True


def all_but_the_lease(call: Call) -> bool:
    """Each call but those that keep the operator leading."""
    return not call.is_lease


def writes(call: Call) -> bool:
    """Each write but those that keep the operator leading."""
    return call.is_write and not call.is_lease


@dataclass(slots=True)
class Fault:
    """A fault while it is injected; `calls` are the calls that it affected."""

    where: Where
    effect: Effect
    calls: list[Call] = field(default_factory=list)


def refused(code: int, reason: str, message: str, retry_after: int | None = None) -> Effect:
    """The API server's own way to refuse, which never hears of it."""
    status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
    body = json.dumps(status | {"code": code, "reason": reason, "message": message})
    headers = {} if retry_after is None else {"Retry-After": str(retry_after)}

    async def answer(_: Forward) -> web.StreamResponse:
        return web.Response(
            status=code, text=body, content_type="application/json", headers=headers
        )

    return answer


def silent() -> Effect:
    """A half-open connection: taken, never answered, never closed."""

    async def answer(_: Forward) -> web.StreamResponse:
        await asyncio.Event().wait()
        raise AssertionError("the event is never set")

    return answer


def late(seconds: float) -> Effect:
    """It is carried out, and its answer comes so much later."""

    async def answer(forward: Forward) -> web.StreamResponse:
        response = await forward()
        await asyncio.sleep(seconds)
        return response

    return answer


def in_turn(*effects: Effect) -> Effect:
    """One after the other, and again from the first."""
    turns = cycle(effects)

    async def answer(forward: Forward) -> web.StreamResponse:
        return await next(turns)(forward)

    return answer


class Held:
    """Calls that are held until they are released, also when the client has given up."""

    def __init__(self) -> None:
        self._free = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self.codes: list[int] = []

    async def __call__(self, forward: Forward) -> web.StreamResponse:
        """An Effect."""
        self._loop = asyncio.get_running_loop()
        await self._free.wait()
        response = await forward()
        self.codes.append(response.status)
        return response

    def let_go(self) -> None:
        """They go on to the API server; `codes` gets its answers."""
        assert self._loop is not None, "nothing is held"
        self._loop.call_soon_threadsafe(self._free.set)


@dataclass(slots=True, eq=False)
class _Watch:
    """A watch that is open. One that was muted stays so: TCP loses no middle of a stream."""

    path: str
    last_words: asyncio.Future[bytes]
    muted: bool = False


class FaultProxy:
    """Listens while it is entered; forwards all calls until a fault is injected."""

    def __init__(self, access: Access) -> None:
        self.calls: list[Call] = []
        self.url = ""
        self._access = access
        self._faults: list[Fault] = []
        self._watches: set[_Watch] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._session: ClientSession | None = None
        self._runner: web.ServerRunner | None = None

    def __enter__(self) -> FaultProxy:
        self._thread.start()
        self._do(self._open())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_START_TIMEOUT)

    @contextmanager
    def inject(self, where: Where, effect: Effect) -> Iterator[Fault]:
        """Affect new calls while the block runs; of several faults the first that matches."""
        fault = Fault(where, effect)
        self._faults = [*self._faults, fault]
        try:
            yield fault
        finally:
            self._faults = [other for other in self._faults if other is not fault]

    def mute_watches(self) -> int:
        """From now on nothing comes by the watches that are open; returns how many they are."""
        return self._do(self._mute())

    def end_watches(self, code: int) -> int:
        """The last word of all open watches is this error; returns how many they were."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code}
        event = {"type": "ERROR", "object": status | {"message": "by the fault proxy"}}
        return self._do(self._end(json.dumps(event).encode() + b"\n"))

    def cut_watches(self) -> int:
        """All open watches end without a word; returns how many they were."""
        return self._do(self._end(b""))

    def _do(self, step: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(step, self._loop).result(_START_TIMEOUT)

    async def _open(self) -> None:
        context = ssl.create_default_context(cadata=self._access.authority)
        self._session = ClientSession(
            connector=TCPConnector(ssl=context, limit=0),
            timeout=ClientTimeout(total=None),
            auto_decompress=False,
        )
        self._runner = runner = web.ServerRunner(web.Server(self._handle), shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"

    async def _close(self) -> None:
        if self._runner is not None:
            await self._runner.cleanup()
        # What was held for a client that has gone since belongs to no connection any more.
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _mute(self) -> int:
        for watch in self._watches:
            watch.muted = True
        return len(self._watches)

    async def _end(self, last_words: bytes) -> int:
        ended = [watch for watch in self._watches if not watch.last_words.done()]
        for watch in ended:
            watch.last_words.set_result(last_words)
        return len(ended)

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        call = Call(time.monotonic(), request.method, request.path, "watch" in request.query)
        self.calls.append(call)
        body = await request.read()

        async def forward() -> web.StreamResponse:
            return await self._forward(request, call, body)

        fault = next((fault for fault in self._faults if fault.where(call)), None)
        if fault is None:
            return await forward()
        fault.calls.append(call)
        return await fault.effect(forward)

    async def _forward(
        self, request: web.BaseRequest, call: Call, body: bytes
    ) -> web.StreamResponse:
        assert self._session is not None
        url = URL(self._access.server + request.raw_path, encoded=True)
        kept = [(name, it) for name, it in request.headers.items() if _is_end_to_end(name)]
        try:
            async with self._session.request(
                call.method, url, data=body or None, headers=kept
            ) as upstream:
                headers = [
                    (name, it) for name, it in upstream.headers.items() if _is_end_to_end(name)
                ]
                if call.is_watch and upstream.status == 200:
                    stream = web.StreamResponse(headers=headers)
                    await stream.prepare(request)
                    await self._stream(call, upstream, stream)
                    return stream
                return web.Response(
                    status=upstream.status, body=await upstream.read(), headers=headers
                )
        except (ClientError, ConnectionError) as error:
            return web.Response(status=502, text=f"the API server: {error}")

    async def _stream(
        self, call: Call, upstream: ClientResponse, stream: web.StreamResponse
    ) -> None:
        """Forward whole lines until either side ends the stream, or last words are to be sent."""
        watch = _Watch(call.path, self._loop.create_future())
        self._watches.add(watch)
        try:
            handing_on = asyncio.create_task(_hand_on(upstream, stream, watch))
            ends: set[asyncio.Future[Any]] = {handing_on, watch.last_words}
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not handing_on.done():
                handing_on.cancel()
                await stream.write(watch.last_words.result())
        finally:
            self._watches.discard(watch)
            handing_on.cancel()


async def _hand_on(upstream: ClientResponse, stream: web.StreamResponse, watch: _Watch) -> None:
    rest = b""
    async for chunk in upstream.content.iter_any():
        rest += chunk
        lines, _, rest = rest.rpartition(b"\n")
        if lines and not watch.muted:
            await stream.write(lines + b"\n")
    if watch.muted:  # its end is not forwarded either
        await asyncio.Event().wait()


def _is_end_to_end(header: str) -> bool:
    return header.lower() not in _HOP_BY_HOP
