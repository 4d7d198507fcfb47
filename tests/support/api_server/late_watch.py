"""A watch of the API server in memory that may be late, lossy, doubled, out of order, or silent.

Events go where those of kopf go. What a watch does to the events of a kind is a `View`.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.support.api_server.fake_api import FakeApi
from tonnage.api.shard import UNNAMED_SHARD
from tonnage.kube.protocol import Kind, Object, has_labels
from tonnage.manager.scope import WATCHED, WATCHED_BY_KOPF, select_labels_of

Observe = Callable[[Kind, str | None, Object], None]

PROMPT_SECONDS: Final = 0.05

LATE_SECONDS: Final = 60.0
"""Longest time that an event takes where all come late."""

View = Callable[[], Sequence[float]]
"""The delays of the next event in seconds, one for each delivery; empty where it never comes."""


def prompt() -> Sequence[float]:
    """As it should be."""
    return (PROMPT_SECONDS,)


def silent() -> Sequence[float]:
    """The connection looks open, and nothing comes any more."""
    return ()


def late(chance: random.Random) -> View:
    """All events come in order, and long after."""
    seconds = chance.uniform(1, LATE_SECONDS)
    return lambda: (seconds,)


def lossy(chance: random.Random) -> View:
    """Some events never come."""
    lost = chance.uniform(0.2, 0.9)
    return lambda: () if chance.random() < lost else (PROMPT_SECONDS,)


def doubled(chance: random.Random) -> View:
    """Each event comes once more, when it is old news."""
    return lambda: (PROMPT_SECONDS, chance.uniform(1, LATE_SECONDS))


def disordered(chance: random.Random) -> View:
    """Events overtake each other."""
    return lambda: (chance.uniform(0, 30),)


class LateWatch:
    """Tells one operator of all that it watches, as the views let it.

    `observe` takes in an event, `restarted` hears that a watch starts now, after a list.
    """

    def __init__(self, api: FakeApi, observe: Observe, restarted: Callable[[Kind], None]) -> None:
        self._api = api
        self._observe = observe
        self._restarted = restarted
        self._views: dict[Kind, View] = {}
        self._due: set[asyncio.TimerHandle] = set()

    def begin(self) -> None:
        """Listen to the API; kopf lists its kinds before it does."""
        self._api.listeners.append(self._hear)
        for kind in WATCHED_BY_KOPF:
            self._restarted(kind)

    def end(self) -> None:
        """Tell nothing any more, also of what has been heard."""
        self._api.listeners.remove(self._hear)
        for handle in self._due:
            handle.cancel()

    def see(self, kind: Kind, view: View) -> None:
        """The events of this kind come so from now on."""
        self._views[kind] = view

    def miss_until_gone(self, kind: Kind, seconds: float) -> None:
        """Events are lost for so long; then the watch hears 410 Gone, lists, and is prompt again.

        What changed meanwhile has no event: only the list shows it.
        """

        def begin_anew() -> None:
            self.see(kind, prompt)
            self._restarted(kind)

        self.see(kind, silent)
        self._later(seconds, begin_anew)

    def _hear(self, kind: Kind, event_type: str, body: Object) -> None:
        """A watch reports what is not selected any more as deleted, as an API server does."""
        if kind in WATCHED:
            seen_type = event_type if _is_selected(kind, body) else "DELETED"
            for seconds in self._views.get(kind, prompt)():
                self._later(seconds, lambda: self._observe(kind, seen_type, body))

    def _later(self, seconds: float, act: Callable[[], None]) -> None:
        def due() -> None:
            self._due.discard(handle)
            act()

        handle = asyncio.get_running_loop().call_later(seconds, due)
        self._due.add(handle)


def _is_selected(kind: Kind, body: Object) -> bool:
    """As the label selectors of the watches have it."""
    return has_labels(body, select_labels_of(kind, UNNAMED_SHARD))
