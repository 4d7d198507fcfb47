"""How much a replica does by the requests that run on it: less and less for each one more.

    time between two tokens at n requests  t(n) = t(1) x (1 + growth x (n - 1))
    tokens a second                        n / t(n)

so half of what a full replica does is done by far fewer than half of its requests. That is why
requests in flight are no measure of load: the same load makes few of them on many replicas and many
on few. The share of what a full replica does is the same however many replicas there are.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ServingCurve:
    """`growth` is by how much of the time with one request alone the time between two tokens grows
    with each request beside it."""

    growth: float

    def work(self, running: float, full: float) -> float:
        """What is done with so many requests, as a share of what is with `full` of them; at most 1,
        since more than these wait."""
        if running >= full:
            return 1.0
        return running / full * self._time(full) / self._time(running)

    def requests_within(self, running: float, share: float) -> float:
        """Requests with which the time between two tokens is that share of the time it takes with
        `running` of them; at least 1."""
        if self.growth <= 0:
            return max(1.0, running) if share >= 1 else 1.0
        return max(1.0, 1 + (self._time(running) * share - 1) / self.growth)

    def _time(self, running: float) -> float:
        return 1 + self.growth * max(0.0, running - 1)
