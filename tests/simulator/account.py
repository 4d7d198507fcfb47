"""The totals of a day: GPUs, dollars, migrations, minutes without a ready replica, violations."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulator.scene import Scene
from tests.simulator.traffic import Traffic

TARGET_SECONDS = 2.0
_HOUR, _MINUTE = 3600.0, 60.0


@dataclass(slots=True)
class Account:
    """Sums over a day. An object counts as without an answer from its first answer on, while it
    wants two replicas or more and none of them is ready."""

    gpu_hours: dict[str, float] = field(default_factory=dict)
    """By pool, of GPUs that pods hold, whether or not they answer."""
    dollars: float = 0.0
    unanswered_minutes: dict[str, float] = field(default_factory=dict)
    """By object."""
    short_replica_hours: float = 0.0
    """Replicas that were wanted and did not answer."""
    starts: int = 0
    """Pods that got GPUs: each loads its model once."""
    restarts: int = 0
    """Ready replicas that ended on a sound node and were not scaled in."""
    moves: Counter[str] = field(default_factory=Counter)
    """By reason."""
    writes_at_rest: int = 0
    """Of the operator, at looks with no reason for any."""
    reconciles: int = 0
    promises: int = 0
    """Checked when they were made."""
    double_bookings: list[str] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    """Promises to the user that were broken, in words."""
    requests: int = 0
    """Of objects that follow their load, those that got their first token."""
    late_requests: int = 0
    """Those that waited longer for it than TARGET_SECONDS."""
    scalings: int = 0
    """Changes of the number of replicas by load."""
    _answered: set[str] = field(default_factory=set)

    @property
    def broken(self) -> list[str]:
        """All that should not have been, in words."""
        restless = [f"{self.writes_at_rest} writes without a reason"] if self.writes_at_rest else []
        return [*self.double_bookings, *self.violations, *restless]

    def pass_time(self, scene: Scene, prices: dict[str, float], seconds: float) -> None:
        """The site was so for so long, at these dollars a GPU and hour by pool."""
        for replica in scene.replicas:
            hours = replica.gpus * seconds / _HOUR
            self.gpu_hours[replica.pool] = self.gpu_hours.get(replica.pool, 0.0) + hours
            self.dollars += hours * prices[replica.pool]
        for name, wanted in scene.wanted.items():
            ready = scene.ready(name)
            self.short_replica_hours += max(0, wanted - ready) * seconds / _HOUR
            if ready:
                self._answered.add(name)
            elif wanted >= 2 and name in self._answered:
                so_far = self.unanswered_minutes.get(name, 0.0)
                self.unanswered_minutes[name] = so_far + seconds / _MINUTE

    def count_requests(self, traffic: Iterable[Traffic]) -> None:
        """Add what became of the requests of the day."""
        for one in traffic:
            self.requests += len(one.first_token_seconds)
            self.late_requests += sum(it > TARGET_SECONDS for it in one.first_token_seconds)

    def compare(self, before: Scene, after: Scene) -> None:
        """Count the starts and restarts between two scenes."""
        there = {replica.uid for replica in before.replicas}
        remain = {replica.uid for replica in after.replicas}
        self.starts += len(remain - there)
        ended = Counter(
            replica.owner
            for replica in before.replicas
            if replica.uid not in remain and replica.ready and replica.node in after.in_service
        )
        for owner, count in ended.items():
            scaled_in = max(0, before.wanted.get(owner, 0) - after.wanted.get(owner, 0))
            self.restarts += max(0, count - scaled_in)
