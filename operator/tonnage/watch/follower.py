"""A watch of ours, for the kinds of which there are many objects and many events.

kopf gives every object a task and a queue and keeps its whole body meanwhile; at ten thousand nodes
that is most of the operator. Here an event is a call of the router, made where it was read.

No objects are listed here: `lists` does that, when a watch is begun anew as every few minutes. What
has to be known is a version to watch from, and it has to be older than such a list.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import aclosing
from typing import Final

from tenacity import AsyncRetrying, RetryCallState, retry_if_exception, wait_random_exponential

from tonnage.kube.answers import ExpiredError
from tonnage.kube.lean import Event
from tonnage.kube.protocol import ApiError, Kind, Object, TransientError
from tonnage.kube.watching import Selection, WatchApi

_log = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS: Final = 30.0

TURN: Final = 32
"""Events taken in before others have their turn: some milliseconds."""

Route = Callable[[Kind, str | None, Object], None]


class Follower:
    """Tells of each event of what is selected; `begun_anew` is told of the plural where some can
    have been missed, and all is to be listed."""

    def __init__(
        self, api: WatchApi, selection: Selection, route: Route, begun_anew: Callable[[str], None]
    ) -> None:
        self._api = api
        self._selection = selection
        self._route = route
        self._begun_anew = begun_anew
        self._version = ""
        # In an outage that all replicas share nobody is helped by an end of the process.
        self._retrying = AsyncRetrying(
            wait=_wait, retry=retry_if_exception(_may_pass), before_sleep=self._tell, reraise=True
        )

    def __str__(self) -> str:
        return str(self._selection)

    async def begin(self) -> None:
        """Know from when on to follow: a list that comes after this misses nothing.

        Raises ApiError.
        """
        self._version = await self._api.version(self._selection)

    async def follow(self) -> None:
        """Tell of all that changes since it was begun, for ever."""
        while True:
            try:
                await self._retrying(self._listen)
            except ExpiredError as error:
                _log.info("watch of %s begun anew: %s", self._selection, error)
                await self._retrying(self.begin)
                self._begun_anew(self._selection.kind.plural)

    async def _listen(self) -> None:
        """One watch, until its end; one that ends before it told anything has failed."""
        told = 0
        try:
            async with aclosing(self._api.events(self._selection, self._version)) as events:
                async for event in events:
                    self._take(event)
                    told += 1
                    if told % TURN == 0:
                        await asyncio.sleep(0)
        except ExpiredError:
            raise
        except TransientError as error:
            if not told:
                raise
            _log.info("watch of %s is opened again: %s", self._selection, error)
        if not told:
            raise TransientError(f"watch of {self._selection}: ended before it told anything")

    def _take(self, event: Event) -> None:
        if event.type in _CHANGES:
            self._route(self._selection.kind, event.type, event.object)
        # Also that of a bookmark, which is all that it tells.
        self._version = event.object["metadata"]["resourceVersion"]

    def _tell(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        _log.warning("watch of %s failed, and is tried again: %s", self._selection, error)


_CHANGES: Final = frozenset({"ADDED", "MODIFIED", "DELETED"})
_backoff = wait_random_exponential(multiplier=1, max=LONGEST_WAIT_SECONDS)


def _wait(state: RetryCallState) -> float:
    """What the server wishes, where it does."""
    error = state.outcome.exception() if state.outcome else None
    wish = error.retry_after if isinstance(error, TransientError) else None
    return max(_backoff(state), wish or 0.0)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, ApiError) and not isinstance(error, ExpiredError)
