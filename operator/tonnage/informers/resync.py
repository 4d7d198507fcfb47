"""What puts right that which no event told.

A watch can be silent, and what a plan follows from is not all watched. So now and then each store
is compared with a list, and keys are reconciled again: those that were planned before the fleet
changed, and every key about once an hour. A plan from the stores costs no request.
"""

import logging
import zlib
from collections.abc import Callable, Iterable
from typing import Final

from tonnage.informers.reflector import Reflector
from tonnage.kube.protocol import ApiError

_log = logging.getLogger(__name__)

ROUNDS: Final = 6
"""Each key is reconciled in one of so many resyncs, whatever is known of it."""

Owner = tuple[str, str]


class Resync:
    """Chooses the keys of each resync. `circumstances` is what a plan follows from beside its
    object: the same value means that another plan of an unchanged object would be the same."""

    def __init__(self, circumstances: Callable[[], object]) -> None:
        self._circumstances = circumstances
        self._planned_in: dict[Owner, object] = {}
        self._round = 0

    def circumstances(self) -> object:
        """Those of now."""
        return self._circumstances()

    def note_planned(self, key: Owner, circumstances: object) -> None:
        """The object was planned in these circumstances, without an error."""
        self._planned_in[key] = circumstances

    def due(self, keys: Iterable[Owner]) -> list[Owner]:
        """The keys to be reconciled in this round, in order; the next round begins."""
        known = sorted(keys)
        now, this_round = self._circumstances(), self._round
        self._round = (self._round + 1) % ROUNDS
        self._planned_in = {key: self._planned_in[key] for key in known if key in self._planned_in}
        return [
            key for key in known if _round_of(key) == this_round or self._planned_in.get(key) != now
        ]


async def verify_all(
    reflectors: Iterable[Reflector], count_missed: Callable[[str, int], None]
) -> bool:
    """Compare the store of each reflector with a list; whether all could be compared.

    `count_missed` is given the plural of a kind, and how many objects its watch told nothing of.
    """
    is_complete = True
    for reflector in reflectors:
        try:
            count_missed(reflector.selection.kind.plural, await reflector.verify())
        except ApiError as error:
            _log.warning("store of %s not verified: %s", reflector, error)
            is_complete = False
    return is_complete


def _round_of(key: Owner) -> int:
    """The round of a key: the same in each process, and spread evenly over all rounds."""
    return zlib.crc32("/".join(key).encode()) % ROUNDS
