"""A Service before simulated replicas that come and go."""

from collections.abc import Mapping
from itertools import chain

from tests.support.load.replica_capacity import ReplicaCapacity
from tests.support.load.simulated_vllm import Served, SimulatedVllm


class SimulatedService:
    """Requests go evenly to the replicas that are ready.

    A replica that is ready no more gets none and ends what it has, as its preStop hook lets it.
    While no replica is ready requests are held, as an activating gateway does, and come all at once
    to the replica that is ready first.
    """

    def __init__(self) -> None:
        self.replicas: dict[str, SimulatedVllm] = {}
        self.held = 0
        self._draining: dict[str, SimulatedVllm] = {}
        self._next = 0  # whose turn it is when requests cannot be split evenly

    @property
    def in_flight(self) -> int:
        """Requests that were taken and not answered in full."""
        everybody = chain(self.replicas.values(), self._draining.values())
        return sum(one.running + one.waiting for one in everybody)

    def use(self, ready: Mapping[str, ReplicaCapacity]) -> None:
        """Have these replicas and no others; one that was not there before is new and empty."""
        for name in self.replicas.keys() - ready.keys():
            self._draining[name] = self.replicas.pop(name)
        for name in ready.keys() - self.replicas.keys():
            self.replicas[name] = SimulatedVllm(ready[name])

    def advance(self, seconds: float, arrivals: int) -> dict[str, Served]:
        """Let some time pass in which so many requests come; what each replica did, by name."""
        served = {name: one.advance(seconds, 0) for name, one in self._draining.items()}
        self._draining = {
            name: one for name, one in self._draining.items() if one.running + one.waiting
        }
        names = sorted(self.replicas)
        if not names:
            self.held += arrivals
            return served
        arrivals, self.held = arrivals + self.held, 0
        each, left = divmod(arrivals, len(names))
        lucky = {names[(self._next + turn) % len(names)] for turn in range(left)}
        self._next += left
        for name in names:
            served[name] = self.replicas[name].advance(seconds, each + (name in lucky))
        return served
