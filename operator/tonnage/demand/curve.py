"""Relates the work of a replica to its running requests: each further request adds less work.

    time between two tokens at n requests  t(n) = t(1) x (1 + growth x (n - 1))
    tokens a second                        n / t(n)

Far fewer than half of its requests do half of a full replica's work. So requests in flight do not
measure load: the same load makes few of them on many replicas and many on few. The work, as a share
of a full replica's, does not depend on the number of replicas.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingCurve:
    """`growth` is the increase of the time between two tokens with each further request, as a share
    of that time with a single request."""

    growth: float

    def work(self, running: float, full: float) -> float:
        """The work of `running` requests as a share of the work of `full` ones; at most 1, because
        further requests wait."""
        if running >= full:
            return 1.0
        return running / full * self._time(full) / self._time(running)

    def requests_within(self, running: float, share: float) -> float:
        """Requests at which the time between two tokens is `share` of that with `running` requests;
        at least 1."""
        if self.growth <= 0:
            return max(1.0, running) if share >= 1 else 1.0
        return max(1.0, 1 + (self._time(running) * share - 1) / self.growth)

    def _time(self, running: float) -> float:
        return 1 + self.growth * max(0.0, running - 1)
