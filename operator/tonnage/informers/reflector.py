"""A reflector keeps a store what the API server says of one kind: it lists, then it watches.

A watch that ends is opened again at the version that it had come to. A version that is too old
(410) means a new list. Each error, that one too, means another try after a growing delay, without
an end: in an outage that all replicas share, ending the process helps no one.
"""

import asyncio
import logging
from contextlib import aclosing
from typing import Any, Final, Protocol

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from tonnage import delays
from tonnage.informers.store import Store
from tonnage.kube.protocol import (
    ApiError,
    ExpiredError,
    ForbiddenError,
    ListWatch,
    Object,
    Parts,
    Selection,
    TransientError,
    WatchEvent,
)
from tonnage.kube.rights import Right

_log = logging.getLogger(__name__)

EVENTS_PER_STEP: Final = 32
"""Events taken in before other tasks run: some milliseconds."""


class ReflectorObserver(Protocol):
    """Is told what a reflector sees, for metrics and for whoever depends on it."""

    def event_seen(self, plural: str) -> None:
        """A watch brought an event of this kind."""
        ...

    def list_denied(self, selection: Selection) -> None:
        """The operator may not list this any more, or may again."""
        ...


class Reflector:
    """Lists and watches what is selected, into a store.

    `is_listed`: the store has what a list showed, and no other list is due. `denied` is the right
    that the operator lacks to list it; None while it has it. What a store says without it may be
    outdated.
    """

    def __init__(
        self,
        api: ListWatch,
        selection: Selection,
        parts: Parts,
        store: Store[Any],
        observer: ReflectorObserver,
    ) -> None:
        self.selection: Final = selection
        self.denied: Right | None = None
        self._api = api
        self._parts = parts
        self._store = store
        self._observer = observer
        self._version = ""
        self.is_listed = False
        self._retry = AsyncRetrying(
            wait=_wait,
            retry=retry_if_exception_type(ApiError),
            before_sleep=self._log_retry,
            reraise=True,
        )

    def __str__(self) -> str:
        return str(self.selection)

    async def list(self) -> None:
        """Make the store what a list shows; the watch goes on from there. Raises ApiError."""
        listing = self._store.begin_list(self.selection.namespace)
        try:
            self._version = await self._api.each(self.selection, self._parts, listing.take)
        except ForbiddenError as error:
            self._note_denial(error.right)
            raise
        listing.end(self._version)
        self.is_listed = True
        self._note_denial(None)

    async def run(self) -> None:
        """Keep the store what the API server says, for ever."""
        while True:
            await self._retry(self._list_and_watch)

    async def verify(self) -> int:
        """Compare the store with a list of metadata, and mend it; the number of objects of which
        the watch has told nothing. Raises ApiError."""
        return await verify(self._api, self.selection, self._parts, self._store)

    def take_silence(self) -> bool:
        """Whether no event has told of an own write in time; each is reported once."""
        return self._store.expectations.take_overdue()

    async def _list_and_watch(self) -> None:
        """One watch, until its end, after a list where one is due.

        Where the watch is denied, each try begins with a list, so that the operator lives on lists.
        """
        if not self.is_listed:
            await self.list()
        try:
            await self._watch()
        except (ExpiredError, ForbiddenError):
            self.is_listed = False  # after a delay, or all replicas would list at the same moment
            raise

    async def _watch(self) -> None:
        """One watch; one that ends before its first event has failed."""
        events = 0
        try:
            stream = self._api.watch(self.selection, self._parts, self._version)
            async with aclosing(stream) as watch_events:
                async for event in watch_events:
                    self._take(event)
                    events += 1
                    if events % EVENTS_PER_STEP == 0:
                        await asyncio.sleep(0)
        except ExpiredError:
            raise
        except TransientError as error:
            if not events:
                raise
            _log.info("reopening watch of %s: %s", self.selection, error)
        if not events:
            raise TransientError(f"watch of {self.selection}: ended before its first event")

    def _take(self, event: WatchEvent) -> None:
        version = event.object["metadata"]["resourceVersion"]
        if event.type in _CHANGES:
            self._observer.event_seen(self.selection.kind.plural)
            self._store.observe(event.type, event.object)
        self._version = version  # also that of a bookmark

    def _note_denial(self, right: Right | None) -> None:
        if right != self.denied:
            self.denied = right
            self._observer.list_denied(self.selection)

    def _log_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("list or watch of %s failed, retrying: %s", self.selection, error)


async def verify(api: ListWatch, selection: Selection, parts: Parts, store: Store[Any]) -> int:
    """Compare a store with a list of metadata, and mend it.

    Metadata is a tenth of the cost of full objects. Where the list shows what the store lacks and
    no event brings it in a moment, everything is listed. The answer is the number of such objects:
    a watch that is silent shows here. Raises ApiError.
    """
    missing: list[Object] = []
    listing = store.begin_list(selection.namespace)

    def compare(obj: Object) -> None:
        if not listing.confirm(obj):
            missing.append(obj)

    version = await api.each(selection, Parts.METADATA, compare)
    if missing or not listing.is_exact(version):
        await asyncio.sleep(delays.LIST_EVENT_DUE)
    unseen = listing.end(version)
    missing = [obj for obj in missing if not store.has_version(obj)]
    if missing:
        full = store.begin_list(selection.namespace)
        full.end(await api.each(selection, parts, full.take))
    return unseen + len(missing)


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_backoff = wait_random_exponential(multiplier=1, max=delays.LIST_RETRY)


def _wait(state: RetryCallState) -> float:
    """Seconds until the next try: what the server asks for, where it does."""
    error = state.outcome.exception() if state.outcome else None
    asked = error.retry_after if isinstance(error, TransientError) else None
    return max(_backoff(state), asked or 0.0)
