"""A reflector keeps a store equal to the API server's objects of one kind: it lists, then watches.

It reopens a watch that ends at the last version received. It relists where that version is too old
(410). After each error, a 410 too, it retries with a growing delay and without an end: in an outage
that all replicas share, to end the process helps no replica.
"""

import asyncio
import logging
from contextlib import aclosing, suppress
from typing import Any, Final, Protocol

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from tonnage import delays
from tonnage.informers.restarts import Restarts
from tonnage.informers.store import Store
from tonnage.kube.kinds import NODES
from tonnage.kube.protocol import (
    ApiError,
    ExpiredError,
    ForbiddenError,
    KindMissingError,
    ListWatch,
    Object,
    ObjectParts,
    Selection,
    TransientError,
    WatchEvent,
)
from tonnage.kube.rights import Right

_log = logging.getLogger(__name__)

EVENTS_PER_STEP: Final = 32
"""Events stored before other tasks run: a few milliseconds."""

BUILT_IN_GROUPS: Final = frozenset({"resource.k8s.io"})
"""API groups that a release or a setting of the API server brings, not an installation."""

NODES_TO_BATCH: Final = 1000
"""Each node reports at least every five minutes (nodeStatusReportFrequency of the kubelet). With
fewer nodes than this, their reports cost no CPU worth a delay."""


class ReflectorObserver(Protocol):
    """Callbacks of a reflector, for metrics and for components that depend on its store."""

    def on_event(self, plural: str) -> None:
        """A watch delivered an event of this kind."""
        ...

    def on_availability(self, selection: Selection) -> None:
        """The operator lost the right to list these objects, or has it again; or the API server
        lost their kind, or has it again."""
        ...


class Reflector:
    """Lists and watches the selected objects into a store.

    `is_listed`: the store has the objects of a list, and no other list is due. `denied` is the
    missing right to list, None while the operator has it; without it the store may be outdated.
    `is_missing`: the API server does not have the kind.
    """

    def __init__(
        self,
        api: ListWatch,
        selection: Selection,
        parts: ObjectParts,
        store: Store[Any],
        observer: ReflectorObserver,
        restarts: Restarts | None = None,
    ) -> None:
        self.selection: Final = selection
        self._restarts: Final = restarts or Restarts()
        self._is_built_in: Final = selection.kind.group in BUILT_IN_GROUPS
        self.denied: Right | None = None
        self.is_missing = False
        self._api = api
        self._parts = parts
        self._store = store
        self._observer = observer
        self._version = ""
        self.is_listed = False
        self._retry = AsyncRetrying(
            wait=_wait,
            retry=retry_if_exception(self._is_retried),
            before_sleep=self._log_retry,
            reraise=True,
        )

    def __str__(self) -> str:
        return str(self.selection)

    async def list(self) -> None:
        """List into the store; the watch continues from there. Raises ApiError."""
        listing = self._store.begin_list(self.selection.namespace)
        try:
            self._version = await self._api.list_pages(self.selection, self._parts, listing.take)
        except ForbiddenError as error:
            self._set_denied(error.right)
            raise
        except KindMissingError:
            self._set_missing(missing=True)
            raise
        listing.end(self._version)
        self.is_listed = True
        self._set_denied(None)
        self._set_missing(missing=False)

    async def run(self) -> None:
        """List and watch for ever."""
        while True:
            if self.is_missing and self._is_built_in:
                await self._restarts.wait()
            with suppress(KindMissingError):
                await self._retry(self._list_and_watch)

    async def verify(self) -> int:
        """Compare the store with a list of metadata, and repair it. Returns the number of objects
        whose changes the watch did not deliver. Raises ApiError."""
        if self.is_missing:
            return 0
        return await verify(self._api, self.selection, self._parts, self._store)

    def take_overdue(self) -> bool:
        """Whether the event of an own write is overdue. Reports each event once."""
        return self._store.expectations.take_overdue()

    async def _list_and_watch(self) -> None:
        """Watch until the watch ends, after a list where one is due.

        Where the operator may not watch, each attempt starts with a list, so that it polls lists.
        """
        if not self.is_listed:
            await self.list()
        try:
            await self._watch()
        except (ExpiredError, ForbiddenError):
            self.is_listed = False  # relist after a delay, or all replicas would list at once
            raise
        except KindMissingError:
            self._set_missing(missing=True)
            raise

    async def _watch(self) -> None:
        """Watch once. Raises TransientError for a watch that ends before its first event."""
        events = 0
        try:
            has_many_nodes = self.selection.kind == NODES and len(self._store) >= NODES_TO_BATCH
            batch_seconds = delays.HEARTBEATS_BATCH if has_many_nodes else 0.0
            stream = self._api.watch(self.selection, self._parts, self._version, batch_seconds)
            async with aclosing(stream) as watch_events:
                async for event in watch_events:
                    self._handle(event)
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

    def _handle(self, event: WatchEvent) -> None:
        version = event.object["metadata"]["resourceVersion"]
        if event.type in _CHANGES:
            self._observer.on_event(self.selection.kind.plural)
            self._store.observe(event.type, event.object)
        self._version = version  # of a bookmark too

    def _set_denied(self, right: Right | None) -> None:
        if right != self.denied:
            self.denied = right
            self._observer.on_availability(self.selection)

    def _set_missing(self, *, missing: bool) -> None:
        if missing == self.is_missing:
            return
        self.is_missing = missing
        if missing:
            self.is_listed = False
            self._store.clear(self.selection.namespace)
            _log.info("the API server has no %s; waiting for it", self.selection)
        else:
            _log.info("the API server has %s now", self.selection)
        self._observer.on_availability(self.selection)

    def _is_retried(self, error: BaseException) -> bool:
        """Whether to try again after a delay. A built-in kind that is missing needs no attempt
        until the API server restarts; a custom resource may come at any time."""
        if isinstance(error, KindMissingError):
            return not self._is_built_in
        return isinstance(error, ApiError)

    def _log_retry(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if not self.is_missing:
            self._restarts.note()
            _log.warning("list or watch of %s failed, retrying: %s", self.selection, error)


async def verify(
    api: ListWatch, selection: Selection, parts: ObjectParts, store: Store[Any]
) -> int:
    """Compare a store with a list of metadata, and repair it.

    Metadata costs a tenth of full objects. Where the store lacks listed objects and no event
    delivers them within LIST_EVENT_DUE, the function lists full objects. Returns the number of
    differences, which reveals a silent watch. Raises ApiError.
    """
    missing: list[Object] = []
    listing = store.begin_list(selection.namespace)

    def compare(obj: Object) -> None:
        if not listing.confirm(obj):
            missing.append(obj)

    version = await api.list_pages(selection, ObjectParts.METADATA, compare)
    if missing or not listing.is_exact(version):
        await asyncio.sleep(delays.LIST_EVENT_DUE)
    unseen = listing.end(version)
    missing = [obj for obj in missing if not store.has_version(obj)]
    if missing:
        full = store.begin_list(selection.namespace)
        full.end(await api.list_pages(selection, parts, full.take))
    return unseen + len(missing)


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_backoff = wait_random_exponential(multiplier=1, max=delays.LIST_RETRY)


def _wait(state: RetryCallState) -> float:
    """Seconds until the next attempt: a random backoff, at least the server's Retry-After."""
    error = state.outcome.exception() if state.outcome else None
    retry_after = error.retry_after if isinstance(error, TransientError) else None
    return max(_backoff(state), retry_after or 0.0)
