"""Own writes that no event has told of yet.

Most of what the operator does has a next step, and it hears of that through its watches: a Service
is there, an endpoint was listed, an old Deployment has gone. Where the watch is silent or loses an
event, the next step would wait for the next list of all objects, and the step after that for the
one after. So each write is an event to be expected, of the very object that was written; where none
comes, whoever the object belongs to is looked at again, live. Where it comes, this costs nothing.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from typing import Final

from tonnage.kube.forwarding import ForwardingKubeApi
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Kind, KubeApi, Object
from tonnage.reconcile.key import Key, Requeue
from tonnage.watch.mappers import keys_for

LATE_SECONDS: Final = 10.0
"""Events come within milliseconds, and within seconds where all are in a hurry."""

_WATCHED: Final = (INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES)
"""What is written and watched; nobody tells of the rest."""

_log = logging.getLogger(__name__)
_in_work: ContextVar[Key | None] = ContextVar("key", default=None)


def told_whose(
    reconcile: Callable[[Key], Awaitable[Requeue]],
) -> Callable[[Key], Awaitable[Requeue]]:
    """The same work, whose writes are known to be done for the key."""

    async def work(key: Key) -> Requeue:
        token = _in_work.set(key)
        try:
            return await reconcile(key)
        finally:
            _in_work.reset(token)

    return work


class Echoes:
    """Objects that were written and not heard of since; for one event loop.

    `look_again` is called for each key that such an object belongs to, or that it was written for.
    """

    def __init__(self, look_again: Callable[[Key], None]) -> None:
        self._look_again = look_again
        self._awaited: dict[str, asyncio.TimerHandle] = {}
        self._writing: dict[object, set[str]] = {}

    def hear(self, uid: str) -> None:
        """An event told of this object."""
        self._await_no_more(uid)
        for heard in self._writing.values():
            heard.add(uid)

    @contextmanager
    def writing(self) -> Iterator[set[str]]:
        """What is heard of during a write, by uid: an event can be here before the answer is."""
        write, heard = object(), set[str]()
        self._writing[write] = heard
        try:
            yield heard
        finally:
            del self._writing[write]

    def expect(self, uid: str, keys: Iterable[Key]) -> None:
        """The object was written, for these and for the key in work, and not heard of since."""
        self._await_no_more(uid)
        whose = {key for key in (*keys, _in_work.get()) if key is not None}
        loop = asyncio.get_running_loop()
        self._awaited[uid] = loop.call_later(LATE_SECONDS, partial(self._miss, uid, whose))

    def _await_no_more(self, uid: str) -> None:
        timer = self._awaited.pop(uid, None)
        if timer is not None:
            timer.cancel()

    def _miss(self, uid: str, whose: Iterable[Key]) -> None:
        del self._awaited[uid]
        for key in sorted(whose):
            _log.info("no event told of a write, looking again", extra={"key": str(key)})
            self._look_again(key)


class ExpectingKubeApi(ForwardingKubeApi):
    """Hands every call on, and expects to hear of each object that is written."""

    def __init__(self, behind: KubeApi, echoes: Echoes) -> None:
        super().__init__(behind)
        self._echoes = echoes

    async def apply(self, kind: Kind, body: Object) -> Object:
        """Server-side apply as field manager `tonnage`, forced."""
        with self._echoes.writing() as heard:
            stored = await super().apply(kind, body)
        self._expect(kind, stored, heard)
        return stored

    async def create(self, kind: Kind, body: Object) -> Object:
        """Make what is not there, as field manager `tonnage`."""
        with self._echoes.writing() as heard:
            stored = await super().create(kind, body)
        self._expect(kind, stored, heard)
        return stored

    async def apply_status(self, kind: Kind, body: Object) -> Object:
        """Server-side apply of /status as field manager `tonnage-status`, forced."""
        with self._echoes.writing() as heard:
            stored = await super().apply_status(kind, body)
        self._expect(kind, stored, heard)
        return stored

    async def delete(
        self, kind: Kind, namespace: str | None, name: str, uid: str, resource_version: str
    ) -> None:
        """Delete exactly this object as read."""
        with self._echoes.writing() as heard:
            await super().delete(kind, namespace, name, uid, resource_version)
        self._expect(kind, {"metadata": {"name": name, "namespace": namespace, "uid": uid}}, heard)

    async def scale(self, kind: Kind, seen: Object, replicas: int) -> None:
        """Set spec.replicas of this object and of no namesake."""
        with self._echoes.writing() as heard:
            await super().scale(kind, seen, replicas)
        self._expect(kind, seen, heard)

    def _expect(self, kind: Kind, written: Object, heard: Collection[str]) -> None:
        uid = written["metadata"]["uid"]
        if kind in _WATCHED and uid not in heard:
            self._echoes.expect(uid, keys_for(kind, written))
