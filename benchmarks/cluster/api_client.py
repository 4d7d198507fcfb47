"""A client that generates load and watches its effects, over connections that stay open."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final

import aiohttp

from e2e.harness.failure import HarnessError
from e2e.harness.rest import Access, Json

_METADATA: Final = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
_METADATA_LIST: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_MERGE_PATCH: Final = "application/merge-patch+json"
_STRATEGIC_MERGE_PATCH: Final = "application/strategic-merge-patch+json"
_APPLY_PATCH: Final = "application/apply-patch+yaml"
_LONGEST_LINE: Final = 2**22
"""Bytes of one watch event at most."""

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One event of a watch. `received_at` is the monotonic clock, in seconds, when its bytes had
    arrived."""

    type: str
    object: Json
    received_at: float

    @property
    def metadata(self) -> Json:
        """The object's metadata."""
        metadata: Json = self.object["metadata"]
        return metadata


@dataclass(frozen=True, slots=True)
class Watch:
    """What to watch: a collection's path, and who takes its events. The API server sends metadata
    only, unless `full_objects` asks for more: the client must not become the slow part."""

    path: str
    handle: Callable[[WatchEvent], None]
    full_objects: bool = False


class WatchActivity:
    """When the last event of some watches came."""

    def __init__(self) -> None:
        self.last_event_at = time.monotonic()

    async def quiet(self, seconds: float, timeout_seconds: float) -> bool:
        """Wait until no event has come for so long; False where that does not happen in time."""
        deadline = time.monotonic() + timeout_seconds
        while (left := self.last_event_at + seconds - time.monotonic()) > 0:
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(left)
        return True


class ApiClient:
    """Requests and watches of one user; nothing is retried."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server

    async def get(self, path: str, query: Mapping[str, str] | None = None) -> Json:
        """GET an object or a list. Raises HarnessError."""
        return await self._request("GET", path, query=query)

    async def create(self, path: str, body: Json) -> None:
        """POST one object to its collection. Raises HarnessError."""
        await self._request("POST", path, body)

    async def merge_patch(self, path: str, change: Json) -> None:
        """Change an object. Raises HarnessError."""
        await self._request("PATCH", path, change, content_type=_MERGE_PATCH)

    async def apply(self, path: str, body: Json) -> None:
        """Apply an object or its status server-side. Raises HarnessError."""
        query = {"fieldManager": "scale-benchmark", "force": "true"}
        await self._request("PATCH", path, body, query=query, content_type=_APPLY_PATCH)

    async def patch_conditions(self, path: str, conditions: Sequence[Json]) -> None:
        """Set conditions in an object's status, as a kubelet does. Raises HarnessError."""
        change = {"status": {"conditions": conditions}}
        await self._request("PATCH", f"{path}/status", change, content_type=_STRATEGIC_MERGE_PATCH)

    async def delete_collection(self, path: str, label_selector: str) -> None:
        """Delete what the selector selects; its dependents follow in the background. Raises
        HarnessError."""
        query = {"labelSelector": label_selector, "propagationPolicy": "Background"}
        await self._request("DELETE", path, query=query)

    async def count(self, path: str) -> int:
        """How many objects a collection has. Raises HarnessError."""
        body = await self._request("GET", path, query={"limit": "1"}, accept=_METADATA_LIST)
        return len(body["items"]) + int(body["metadata"].get("remainingItemCount") or 0)

    async def generations(self, path: str) -> dict[str, int]:
        """metadata.generation of each object of a collection, by name. Raises HarnessError."""
        generations: dict[str, int] = {}
        query = {"limit": str(_PAGE)}
        while True:
            page = await self._request("GET", path, query=query, accept=_METADATA_LIST)
            for item in page["items"]:
                generations[item["metadata"]["name"]] = item["metadata"]["generation"]
            if not (next_page := page["metadata"].get("continue")):
                return generations
            query["continue"] = next_page

    @asynccontextmanager
    async def watching(self, *watches: Watch) -> AsyncIterator[WatchActivity]:
        """Handle events from now on, until the block ends. Raises HarnessError when a watch
        failed meanwhile."""
        activity = WatchActivity()
        versions = [await self._current_version(watch.path) for watch in watches]
        tasks = [
            asyncio.create_task(self._follow(watch, version, activity))
            for watch, version in zip(watches, versions, strict=True)
        ]
        try:
            yield activity
        finally:
            await _cancel(tasks)

    async def _current_version(self, path: str) -> str:
        body = await self._request("GET", path, query={"limit": "1"}, accept=_METADATA_LIST)
        return str(body["metadata"]["resourceVersion"])

    async def _follow(self, watch: Watch, version: str, activity: WatchActivity) -> None:
        """A busy API server ends watches that it cannot serve in time; the next one begins where
        the last one ended."""
        headers = {"Accept": "application/json" if watch.full_objects else _METADATA}
        while True:
            query = {"watch": "1", "resourceVersion": version, "timeoutSeconds": "3600"}
            async with self._session.get(
                self._server + watch.path,
                params=query,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=None),
                read_bufsize=_LONGEST_LINE,
            ) as answer:
                async for line in answer.content:
                    received_at = activity.last_event_at = time.monotonic()
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        raise HarnessError(f"watch of {watch.path}: {event['object']}")
                    version = event["object"]["metadata"]["resourceVersion"]
                    watch.handle(WatchEvent(event["type"], event["object"], received_at))

    async def _request(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
        content_type: str = "application/json",
    ) -> Json:
        async with self._session.request(
            method,
            self._server + path,
            params=query,
            data=None if body is None else json.dumps(body),
            headers={"Accept": accept, "Content-Type": content_type},
        ) as answer:
            text = await answer.text()
            if answer.status >= 400:
                raise HarnessError(f"{method} {path}: {answer.status} {text}")
            content: Json = json.loads(text)
            return content


async def _cancel(tasks: Iterable[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def open_client(access: Access) -> AsyncIterator[ApiClient]:
    """A client with an admin's rights."""
    trust = ssl.create_default_context(cadata=access.authority)
    connector = aiohttp.TCPConnector(limit=0, ssl=trust)
    headers = {"Authorization": f"Bearer {access.token}"}
    async with aiohttp.ClientSession(connector=connector, headers=headers) as session:
        yield ApiClient(session, access.server)
