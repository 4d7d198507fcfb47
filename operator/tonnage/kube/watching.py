"""Watches of the API server: what changes of a kind, as it comes."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final

from tonnage.kube.answers import ExpiredError
from tonnage.kube.gathering import Gathering
from tonnage.kube.kinds import NODES
from tonnage.kube.lean import Event, LeanReader
from tonnage.kube.protocol import Kind, TransientError
from tonnage.kube.transport import Query, Request, Transport

ANSWER_SECONDS: Final = 30.0
SILENT_SECONDS: Final = 70.0
"""A connection on which nothing came for so long is a dead one: the API server sends a bookmark
every minute (KEP 956). Some proxies let the answer begin with the first of them."""

LONGEST_SECONDS: Final = 300
"""The API server ends a watch after this time. Its version stays good, so nothing is missed."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is watched of a kind: in one namespace or in all, with these selectors."""

    kind: Kind
    namespace: str | None = None
    labels: str = ""
    fields: str = ""

    def __str__(self) -> str:
        place = f" in {self.namespace}" if self.namespace else ""
        return f"{self.kind.plural}{place}"

    def query(self) -> Query:
        """As the API server wants to be asked."""
        selectors = (("labelSelector", self.labels), ("fieldSelector", self.fields))
        return tuple((name, value) for name, value in selectors if value)


class WatchApi:
    """Watches on one API server. What is told of nodes is gathered: most of it are heartbeats."""

    def __init__(self, transport: Transport, gathering: Gathering) -> None:
        self._transport = transport
        self._gathering = gathering

    async def version(self, selection: Selection) -> str:
        """The version of now, to watch from. Raises ApiError."""
        query: Query = (("limit", 1), *selection.query())
        request = Request("list", "GET", selection.kind, selection.namespace, None, query=query)
        body = await self._transport.fetch(request, ANSWER_SECONDS)
        if version := LeanReader(selection.kind).page(body).version:
            return version
        raise TransientError(f"{request}: the list has no resourceVersion")

    async def events(self, selection: Selection, since: str) -> AsyncGenerator[Event, None]:
        """What changed since that version, bookmarks too, until the API server ends it.

        Raises ExpiredError when the version is too old, and other ApiErrors.
        """
        query: Query = (
            ("watch", True),
            ("allowWatchBookmarks", True),
            ("resourceVersion", since),
            ("timeoutSeconds", LONGEST_SECONDS),
            *selection.query(),
        )
        request = Request("watch", "GET", selection.kind, selection.namespace, None, query=query)
        reader = LeanReader(selection.kind)
        gathering = self._gathering if selection.kind == NODES else None
        async with aclosing(self._transport.lines(request, SILENT_SECONDS, gathering)) as lines:
            async for line in lines:
                event = reader.event(line)
                if event.type == "ERROR":
                    raise _error(request, event)
                yield event


def _error(request: Request, event: Event) -> TransientError:
    message = f"{request}: {event.object.get('code')}: {event.object.get('message')}"
    return ExpiredError(message) if event.object.get("code") == 410 else TransientError(message)
