"""vLLM servers whose start takes as long as a model takes to load, or fails."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from tests.support.faults.fake_clock import FakeClock
from tests.support.in_memory.controllers import crashing, loading, ready
from tonnage.api.names import LABEL_PLACEMENT
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import format_time

_OUT_OF_MEMORY = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total "
    "capacity of 79.11 GiB of which 1.20 GiB is free."
)


@dataclass(frozen=True, slots=True)
class Server:
    """What the pods of one object do: they answer `load_seconds` after they got their node.

    On the placements in `dies_on` they run out of memory instead, again and again, unless they have
    the argument `well_with`.
    """

    clock: FakeClock
    load_seconds: float
    dies_on: Collection[str] = ()
    well_with: str = ""

    def __call__(self, pod: Object) -> Object:
        """The status that the kubelet gives the pod next; `startTime` is when it got its node."""
        started = pod["status"].get("startTime") or format_time(self.clock.now())
        if self.clock.now() < self.ready_at(started):
            return {**loading(pod), "startTime": started}
        behave = crashing(message=_OUT_OF_MEMORY) if self._dies(pod) else ready
        return {**behave(pod), "startTime": started}

    def ready_at(self, started: str) -> datetime:
        """When a server that began at `started` has loaded its model."""
        return datetime.fromisoformat(started) + timedelta(seconds=self.load_seconds)

    def dying_on(self, placements: Collection[str], well_with: str) -> "Server":
        """The same server, which runs out of memory on these placements, unless it has this
        argument."""
        return replace(self, dies_on=frozenset(placements), well_with=well_with)

    def _dies(self, pod: Object) -> bool:
        placement = pod["metadata"]["labels"][LABEL_PLACEMENT]
        arguments = pod["spec"]["containers"][0]["args"]
        return placement in self.dies_on and self.well_with not in arguments
