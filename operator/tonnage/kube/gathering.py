"""What a watch tells one by one is taken in together, unless somebody is at work.

Nearly all that is told of nodes are heartbeats: 33 a second of 10,000 nodes. To wake up for one
costs several times what is done with it. So where nothing is to be done they wait in the socket for
a moment, and whoever begins to work has them taken in before.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import aiohttp

GATHER_SECONDS: Final = 0.5
"""How long what is told waits at most. A node that is lost has been silent for 40 s before that is
told (node-monitor-grace-period of Kubernetes), and looks that follow wait for longer."""

AT_WORK_SECONDS: Final = 1.0
"""For so long after somebody began to work, what is told is taken in as it comes."""

MANY_BYTES: Final = 128 * 1024
"""Where so much came at once more is likely to wait, and whoever sends it shall not."""

_TURNS: Final = 10
"""Of the event loop, until what lay in a socket has been routed: what TLS had read is decrypted,
the socket is watched again, read, decrypted, cut into lines, and whoever follows it goes on."""


class Gathering:
    """One for all watches that gather."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._attended_at = -math.inf
        self._resting: set[asyncio.Event] = set()

    async def rest(self, response: aiohttp.ClientResponse, read_bytes: int) -> None:
        """Leave what comes in the socket for a while, after so much was read."""
        connection = response.connection
        protocol = connection.protocol if connection is not None else None
        busy = self._clock() - self._attended_at < AT_WORK_SECONDS
        if protocol is None or busy or read_bytes >= MANY_BYTES:
            return
        woken = asyncio.Event()
        self._resting.add(woken)
        protocol.pause_reading()
        _leave_in_socket(protocol.transport)
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(GATHER_SECONDS):
                    await woken.wait()
        finally:
            self._resting.discard(woken)
            protocol.resume_reading()

    async def attend(self) -> None:
        """Have everything taken in that has come until now, and all else as it comes."""
        self._attended_at = self._clock()
        if not self._resting:
            return
        for woken in self._resting:
            woken.set()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


def _leave_in_socket(transport: asyncio.BaseTransport | None) -> None:
    """TLS reads on while nobody reads it, up to 256 KiB, and wakes up for each piece; so it is to
    stop after the first. asyncio documents the call in the code of that transport alone."""
    limit = getattr(transport, "set_read_buffer_limits", None)
    if limit is not None:
        limit(high=1, low=0)
