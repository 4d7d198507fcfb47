"""Requests for one object, answered by simulated vLLM replicas, and what Prometheus has of that."""

from collections.abc import Mapping
from random import Random

from tests.support.load.poisson import poisson
from tests.support.load.replica_capacity import ReplicaCapacity
from tests.support.load.scraped_load import ScrapedLoad
from tests.support.load.simulated_service import SimulatedService
from tests.support.load.synthetic_day import SyntheticDay
from tonnage.demand.signals import MeasuredLoad


class Traffic:
    """Requests that come at random by the hour of the day; `first_token_seconds` has one entry for
    each that got its first token. A scrape is made each `interval_seconds`."""

    def __init__(self, day: SyntheticDay, interval_seconds: int, seed: int) -> None:
        self.first_token_seconds: list[float] = []
        self._day, self._interval, self._chance = day, interval_seconds, Random(seed)
        self._service, self._scraped = SimulatedService(), ScrapedLoad(interval_seconds)

    def serve(self, now: int, seconds: int, ready: Mapping[str, ReplicaCapacity]) -> None:
        """From now on so many seconds pass, with these pods to answer; requests wait for the first
        where there is none."""
        self._service.use(ready)
        for second in range(now, now + seconds):
            served = self._service.advance(1.0, poisson(self._chance, self._day.rate(second)))
            self._scraped.learn(served)
            for did in served.values():
                self.first_token_seconds += did.first_token_seconds
            if (second + 1) % self._interval == 0:
                self._scraped.scrape(self._service.replicas)

    def measured(self) -> MeasuredLoad:
        """What is known of the pods by the last scrapes."""
        return self._scraped.measured()
