"""A server on loopback that answers as it likes: too much, too slowly, or not in HTTP at all."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import parse_qs, urlsplit

Say = Callable[[asyncio.StreamWriter], Awaitable[None]]
"""Writes whatever it likes; the connection is closed when it returns."""


@dataclass
class ReceivedRequest:
    """One request: its target, and its headers by their names in small letters."""

    target: str
    headers: dict[str, str]

    @property
    def query(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(urlsplit(self.target).query).items()}


def _set_event() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


@dataclass
class HostileServer:
    """`say` may be changed at any time; `open_connections` are those that are not closed.
    `all_closed` is set before the first one, too: a client may end before it connects."""

    say: Say
    url: str = ""
    asked: list[ReceivedRequest] = field(default_factory=list)
    open_connections: int = 0
    heard: asyncio.Event = field(default_factory=asyncio.Event)
    all_closed: asyncio.Event = field(default_factory=_set_event)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open_connections += 1
        self.all_closed.clear()
        speaking = asyncio.create_task(self._speak(reader, writer))
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await speaking
        finally:
            writer.close()
            self.open_connections -= 1
            if not self.open_connections:
                self.all_closed.set()

    async def _speak(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        first, *lines = head.splitlines()
        headers = (line.partition(": ") for line in lines if line)
        self.asked.append(
            ReceivedRequest(first.split()[1], {name.lower(): value for name, _, value in headers})
        )
        self.heard.set()
        saying = asyncio.create_task(self.say(writer))
        # The other end says no more; the end of what it says is that it has gone.
        going = asyncio.create_task(reader.read())
        await asyncio.wait({saying, going}, return_when=asyncio.FIRST_COMPLETED)
        for task in (saying, going):
            task.cancel()
        await asyncio.gather(saying, going, return_exceptions=True)


@asynccontextmanager
async def serving(
    say: Say, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
) -> AsyncIterator[HostileServer]:
    server = HostileServer(say)
    listening = await asyncio.start_server(server.handle, host, 0, ssl=tls)
    port = listening.sockets[0].getsockname()[1]
    server.url = f"{'https' if tls else 'http'}://{host}:{port}"
    try:
        yield server
    finally:
        listening.close()


def says(status: int, body: bytes, *headers: str) -> Say:
    """One answer in HTTP."""

    async def say(writer: asyncio.StreamWriter) -> None:
        head = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers, "", ""]
        writer.write("\r\n".join(head).encode() + body)
        await writer.drain()

    return say


def says_raw(text: bytes) -> Say:
    """These bytes, and the end."""

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(text)
        await writer.drain()

    return say


def says_without_end(begin: bytes, more: bytes, pause: float = 0.0) -> Say:
    """The same again and again, with a pause in between."""

    async def say(writer: asyncio.StreamWriter) -> None:
        writer.write(begin)
        while True:
            writer.write(more)
            await writer.drain()
            await asyncio.sleep(pause)

    return say


async def says_nothing(_: asyncio.StreamWriter) -> None:
    """Hang."""
    await asyncio.Event().wait()
