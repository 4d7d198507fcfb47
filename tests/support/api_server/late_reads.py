"""An API server that answers from an old cache: reads of a kind are as it was some seconds ago.

A real one does that only where it is asked to, or where it is broken; the operator asks for what is
true now. What it writes goes to what is stored, as ever.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.api_server.fake_api import FakeApi, parts_of
from tests.support.api_server.forwarding import Forwarding
from tonnage.kube.protocol import (
    Kind,
    Labels,
    NotFoundError,
    Object,
    ObjectParts,
    Selection,
    has_labels,
)

_Place = tuple[str | None, str]
_Objects = list[Object]  # inside the class, `list` is the verb


def _place(body: Object) -> _Place:
    return body["metadata"].get("namespace"), body["metadata"]["name"]


@dataclass
class _Past:
    """Objects of a kind as they were so many seconds ago, and what has become of them since."""

    seconds: float
    objects: dict[_Place, Object]
    version: str
    since: deque[tuple[float, str, Object]] = field(default_factory=deque)

    def catch_up(self, now: float) -> None:
        while self.since and self.since[0][0] <= now - self.seconds:
            _, event_type, body = self.since.popleft()
            self.version = body["metadata"]["resourceVersion"]
            if event_type == "DELETED":
                self.objects.pop(_place(body), None)
            else:
                self.objects[_place(body)] = body


class LateReads(Forwarding):
    """Hands every call on but the reads of kinds that lag behind."""

    def __init__(self, api: FakeApi) -> None:
        super().__init__(api)
        self._api = api
        self._past: dict[Kind, _Past] = {}
        api.listeners.append(self._note)

    def lag(self, kind: Kind, seconds: float) -> None:
        """From now on reads of the kind tell of what was so many seconds ago."""
        bodies = {_place(body): body for body in self._api.objects(kind)}
        self._past[kind] = _Past(seconds, bodies, self._api.version)

    async def get(self, kind: Kind, namespace: str | None, name: str) -> Object:
        if kind not in self._past:
            return await self._api.get(kind, namespace, name)
        body = self._objects(kind).get((namespace, name))
        if body is None:
            raise NotFoundError(f'{kind.plural} "{name}" not found')
        return body

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Labels | None = None,
    ) -> _Objects:
        if kind not in self._past:
            return await self._api.list(kind, namespace, labels)
        return [
            body
            for place, body in sorted(self._objects(kind).items(), key=str)
            if namespace in (None, place[0]) and has_labels(body, labels or {})
        ]

    async def list_first(self, selection: Selection, parts: ObjectParts, limit: int) -> _Objects:
        bodies: _Objects = []
        await self.list_pages(selection, parts, bodies.append)
        return bodies[:limit]

    async def list_pages(
        self, selection: Selection, parts: ObjectParts, take: Callable[[Object], object]
    ) -> str:
        if selection.kind not in self._past:
            return await self._api.list_pages(selection, parts, take)
        for body in await self.list(selection.kind, selection.namespace, selection.labels):
            take(parts_of(body, parts))
        return self._past[selection.kind].version

    def _objects(self, kind: Kind) -> dict[_Place, Object]:
        past = self._past[kind]
        past.catch_up(asyncio.get_running_loop().time())
        return past.objects

    def _note(self, kind: Kind, event_type: str, body: Object) -> None:
        if kind in self._past:
            now = asyncio.get_running_loop().time()
            self._past[kind].since.append((now, event_type, body))
