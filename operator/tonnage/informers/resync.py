"""Resync: corrects what no event reported.

A watch can be silent, and the operator does not watch all inputs of a plan. So at intervals it
compares each store with a list, and reconciles keys again: those planned before the fleet changed,
and every key about once an hour. A plan from the stores costs no request.
"""

import logging
import zlib
from collections.abc import Callable, Iterable
from typing import Final

from tonnage.informers.reflector import Reflector
from tonnage.informers.store import ObjectKey
from tonnage.kube.protocol import ApiError

_log = logging.getLogger(__name__)

ROUNDS: Final = 6
"""Each key is reconciled in one of this many resyncs, even where nothing changed."""


class Resync:
    """Chooses the keys of each resync. `circumstances` returns the inputs of a plan other than its
    object: while the value is the same, another plan of an unchanged object would be the same."""

    def __init__(self, circumstances: Callable[[], object]) -> None:
        self._circumstances = circumstances
        self._planned_in: dict[ObjectKey, object] = {}
        self._round = 0

    def circumstances(self) -> object:
        """The current inputs of a plan."""
        return self._circumstances()

    def note_planned(self, key: ObjectKey, circumstances: object) -> None:
        """Record that the object was planned in these circumstances, without an error."""
        self._planned_in[key] = circumstances

    def due(self, keys: Iterable[ObjectKey]) -> list[ObjectKey]:
        """Return the sorted keys to reconcile in this round, and start the next round."""
        ordered = sorted(keys)
        current, this_round = self._circumstances(), self._round
        self._round = (self._round + 1) % ROUNDS
        planned_in = {key: self._planned_in[key] for key in ordered if key in self._planned_in}
        self._planned_in = planned_in
        return [
            key for key in ordered if _round_of(key) == this_round or planned_in.get(key) != current
        ]


async def verify_all(
    reflectors: Iterable[Reflector], count_missed: Callable[[str, int], None]
) -> bool:
    """Compare the store of each reflector with a list. Returns whether all lists succeeded.

    `count_missed` gets the plural of a kind and the number of objects that its watch missed.
    """
    is_complete = True
    for reflector in reflectors:
        try:
            count_missed(reflector.selection.kind.plural, await reflector.verify())
        except ApiError as error:
            _log.warning("failed to verify store of %s: %s", reflector, error)
            is_complete = False
    return is_complete


def _round_of(key: ObjectKey) -> int:
    """The round of a key: the same in each process, and spread evenly over all rounds."""
    return zlib.crc32("/".join(key).encode()) % ROUNDS
