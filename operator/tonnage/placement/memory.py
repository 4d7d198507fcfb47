"""What was found out for one plan and holds for the next, so that a plan costs what has changed.

Nothing that comes out of it differs from what is found out anew: what devices can do for a load
follows from both, and a pool that is the same object as before is the same pool.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from tonnage.api.inference import PlacementSpec
from tonnage.fleet.model import Pool
from tonnage.placement.load import Load
from tonnage.placement.model import Option, Rejection
from tonnage.placement.screening import Devices
from tonnage.placement.sizing import Size

LOADS: Final = 256
"""Loads whose sizes are remembered: one takes about 100 KiB for 20 kinds of devices."""

WISHES: Final = 64
"""Wishes (a load and what the user says of pools) whose verdicts are remembered: one takes about
200 KiB for 200 pools."""

Sizes = dict[Devices, Sequence[Size] | Rejection]
Verdicts = dict[str, tuple[Pool, Option | Rejection]]
"""By the name of the pool, the pool that was judged and what came of it."""


class Memory:
    """Sizes by load and verdicts by wish, of one catalogue; those asked for last are kept."""

    def __init__(self) -> None:
        self._sizes = lru_cache(LOADS)(_no_sizes)
        self._verdicts = lru_cache(WISHES)(_no_verdicts)

    def sizes(self, load: Load) -> Sizes:
        """What is known of devices under this load; whoever sizes others adds them."""
        return self._sizes(load)

    def verdicts(self, load: Load, placement: PlacementSpec) -> Verdicts:
        """What is known of pools for this wish; whoever judges others adds them."""
        return self._verdicts(load, placement.model_dump_json())


def _no_sizes(load: Load) -> Sizes:
    return {}


def _no_verdicts(load: Load, placement: str) -> Verdicts:
    return {}
