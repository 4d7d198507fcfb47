"""Load on the replicas of a cluster in memory, as vLLM would tell of it."""

from dataclasses import dataclass, field
from typing import Any

from tests.support.in_memory.cluster import Cluster
from tonnage.demand.conventions import load_conventions
from tonnage.demand.signals import Mean, MeasuredLoad, PodLoad, QueueSample
from tonnage.telemetry.load import LoadQuery

_QUEUED_FOR = 120.0


@dataclass
class ReplicaLoad:
    """`work` is what arrives, in what a full replica does; it is spread evenly over the ready
    replicas, of which each holds `capacity` requests. What is too much for them has queued up for
    two minutes. By default all is seen; `unseen` replicas, the first ones, are not. Of `short`
    requests a second and replica, no gauge shows any."""

    cluster: Cluster
    work: float = 0.0
    capacity: float = 10.0
    queued: float | None = None
    unseen: int = 0
    short: float = 0.0
    answers: bool = True
    asked: list[LoadQuery] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster.measure_load = self.measure

    async def measure(self, question: LoadQuery) -> MeasuredLoad | None:
        """What a Prometheus would have; None while it does not answer."""
        self.asked.append(question)
        if not self.answers:
            return None
        ready = sorted(pod["metadata"]["name"] for pod in self.cluster.pods() if _is_ready(pod))
        load = self._each(self.work / len(ready)) if ready else None
        queue = None if self.queued is None else QueueSample(self.queued, 5.0)
        return MeasuredLoad(dict.fromkeys(ready[self.unseen :], load) if load else {}, queue)

    def _each(self, share: float) -> PodLoad:
        """One replica that is to do that share of what a full one does."""
        full = self.cluster.status().get("scaling", {}).get("replica", {})
        usual = (load_conventions().usual_slowdown - 1) / (self.capacity - 1)
        growth, done = full.get("slowdownPerRequest", usual), min(1.0, share) * self.capacity
        # Half of the work is done by far fewer than half of the requests: each slows down the rest.
        running = done * (1 - growth) / (1 + growth * (self.capacity - 1) - growth * done)
        a_second = full.get("tokensPerSecond", 0.0) / 200
        waiting = max(0.0, share - 1) * a_second * _QUEUED_FOR
        first_token = Mean(self.short / 10, self.short)
        usage = running / self.capacity
        return PodLoad(running, waiting, usage, age_seconds=5.0, first_token=first_token)


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(
        condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions
    )
