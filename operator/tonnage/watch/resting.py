"""Which objects a resync need not look at.

Lists show whether an object and what belongs to it are as the last look found them. Where they are,
that look left nothing to do, and the circumstances are the same, another look would find the same.
That is most of what an operator would do in a cluster where nothing happens.

What no list shows is looked at all the same, by and by: a branch of a Hub that has moved on, a pod
that did not tell what it measured, and what nobody has thought of.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Final

from tonnage.fit.corrections import LearntCorrections
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import Circumstances, Looks
from tonnage.runtime.fleet_state import FleetState

ROUNDS: Final = 6
"""Each object is looked at in one of so many resyncs, whatever is known of it: about every hour."""


class RestingObjects:
    """Tells those that rest from all others; `known` is what starts have taught by now."""

    def __init__(
        self, looks: Looks, fleet: FleetState, known: Callable[[], LearntCorrections]
    ) -> None:
        self._looks = looks
        self._fleet = fleet
        self._known = known
        self._round = 0

    def awake(self, keys: Iterable[Key]) -> list[Key]:
        """Those that are to be looked at in this round, in order; the next round begins."""
        now = Circumstances(self._fleet.changes, self._known())
        turn, self._round = self._round, (self._round + 1) % ROUNDS
        return [
            key
            for key in sorted(keys)
            if _turn_of(key) == turn or not self._looks.would_rest(key, now)
        ]


def _turn_of(key: Key) -> int:
    """The round of an object: the same in each process, and others' evenly beside it."""
    return zlib.crc32(str(key).encode()) % ROUNDS
