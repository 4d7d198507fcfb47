"""When parents and their children came into being, as one client's watches told it.

Both kinds are watched by the same client and timed by the same clock, when the event's bytes are
there. Objects come as metadata alone: the client must not be what is slow.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final

import aiohttp

from e2e.failure import HarnessError
from e2e.rest import Access, Json

_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LONGEST_LINE: Final = 2**22


class Births:
    """Times of birth by name (parents) and by the parent's name (its first child), and when a
    parent changed for the first time: by its status, as nobody else writes it."""

    def __init__(self) -> None:
        self.parents: dict[str, float] = {}
        self.reports: dict[str, float] = {}
        self.children: dict[str, float] = {}
        self._changed = asyncio.Event()

    def parent_told(self, metadata: Json, at: float) -> None:
        """An event of a parent."""
        name = metadata["name"]
        if name in self.parents:
            self.reports.setdefault(name, at)
        self.parents.setdefault(name, at)

    def child_told(self, metadata: Json, at: float) -> None:
        """An event of a child."""
        for owner in metadata.get("ownerReferences") or []:
            if owner.get("controller"):
                self.children.setdefault(owner["name"], at)
        self._changed.set()

    def latencies(self, names: Sequence[str]) -> list[float]:
        """Seconds from a parent's birth to its child's."""
        return [self.children[name] - self.parents[name] for name in names]

    def reported_after(self, names: Sequence[str]) -> list[float]:
        """Seconds from a parent's birth to its first status, of those that have one."""
        return [self.reports[one] - self.parents[one] for one in names if one in self.reports]

    async def all_born(self, names: Sequence[str], within_seconds: float) -> None:
        """Wait until each of these parents has a child. Raises HarnessError."""
        missing = set(names)
        try:
            async with asyncio.timeout(within_seconds):
                while missing := missing - self.children.keys() | missing - self.parents.keys():
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise HarnessError(
                f"{len(missing)} of {len(names)} parents have no child after {within_seconds:g} s,"
                f" among them {sorted(missing)[:3]}"
            ) from None


class Client:
    """Creates objects and watches kinds, over connections that are kept."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server

    async def create(self, path: str, body: Json) -> None:
        """POST one object. Raises HarnessError."""
        async with self._session.post(self._server + path, json=body) as answer:
            if answer.status != 201:
                raise HarnessError(f"POST {path}: {answer.status} {await answer.text()}")
            await answer.read()

    async def report_status(self, path: str, conditions: Sequence[Json]) -> None:
        """Tell an object's conditions, as a kubelet does. Raises HarnessError."""
        text = json.dumps({"status": {"conditions": conditions}})
        headers = {"Content-Type": "application/strategic-merge-patch+json"}
        target = f"{self._server}{path}/status"
        async with self._session.patch(target, data=text, headers=headers) as answer:
            if answer.status != 200:
                raise HarnessError(f"PATCH {path}: {answer.status} {await answer.text()}")
            await answer.read()

    async def watch(self, path: str, tell: Callable[[Json, float], None]) -> asyncio.Task[None]:
        """Tell of each object from now on, until the task is cancelled."""
        query = {"limit": "1"}
        accept = {"Accept": _METADATA_LIST}
        async with self._session.get(self._server + path, params=query, headers=accept) as answer:
            version = (await answer.json(content_type=None))["metadata"]["resourceVersion"]
        return asyncio.create_task(self._follow(path, version, tell))

    async def _follow(self, path: str, version: str, tell: Callable[[Json, float], None]) -> None:
        """An API server that is busy ends watches that it cannot serve in time; the next one begins
        where that ended."""
        while True:
            query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self._session.get(
                self._server + path,
                params=query,
                headers={"Accept": _METADATA_ONLY},
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=_LONGEST_LINE,
            ) as answer:
                async for line in answer.content:
                    at = time.monotonic()
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise HarnessError(f"watch of {path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    tell(event["object"]["metadata"], at)


@asynccontextmanager
async def open_client(access: Access) -> AsyncIterator[Client]:
    """A client with an admin's rights."""
    trust = ssl.create_default_context(cadata=access.authority)
    connector = aiohttp.TCPConnector(limit=0, ssl=trust)
    headers = {"Authorization": f"Bearer {access.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield Client(session, access.server)
