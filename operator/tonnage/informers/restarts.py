"""Restarts of the API server, which alone can bring a built-in kind that it does not serve."""

import asyncio


class Restarts:
    """Signals that connections to the API server broke, as they do when it restarts."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def note(self) -> None:
        """Record that a list or watch failed."""
        for event in self._waiting:
            event.set()

    async def wait(self) -> None:
        """Wait until the next list or watch fails."""
        event = asyncio.Event()
        self._waiting.add(event)
        try:
            await event.wait()
        finally:
            self._waiting.discard(event)
