"""A watch that is silent shows in what lists find and no event tells.

A connection that was dropped somewhere on its way can look open for ever, and an operator that only
listens would not notice. Lists put right what was missed; this counts it, so that somebody hears of
the silence, too.
"""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Kind
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.seen_objects import SeenObjects

LATE_SECONDS: Final = 30.0
"""An event of something that a list found first comes within this time, or was missed."""


class MissedChanges:
    """Counts them, kind by kind, some time after the last list. `specs` are the generations of
    InferenceDeployments; `kinds` those that are watched: what else is listed, no event tells."""

    def __init__(
        self,
        fleet: FleetState,
        specs: SeenObjects[int],
        kinds: Collection[Kind],
        tell: Callable[[str, int], None],
    ) -> None:
        self._fleet = fleet
        self._specs = specs
        self._kinds = kinds
        self._tell = tell
        self._timer: asyncio.TimerHandle | None = None

    def listed(self) -> None:
        """Something was listed just now."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(LATE_SECONDS, self.count)

    def count(self) -> None:
        """Tell what has been missed, and where nothing was, that."""
        missed = {
            **self._fleet.take_unannounced(),
            INFERENCE_DEPLOYMENTS: self._specs.take_unannounced(),
        }
        for kind, changes in missed.items():
            if kind in self._kinds:
                self._tell(kind.plural, changes)
