"""A tenant that changes nine objects 60 times a second each delays no event of others by a second.

Time is simulated: reconciles share the cores as coroutines of one process do.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.faults.fake_clock import FakeClock
from tonnage.controller.queueing.key_schedule import KeySchedule
from tonnage.controller.queueing.priority import Priority, WorkerShares

Key = tuple[str, str]

SECONDS = 5.0
PATCHES_PER_SECOND = 60
NINE: list[Key] = [("tenant", f"llama-{number}") for number in range(9)]
OTHERS: list[Key] = [(f"team-{number % 3}", f"qwen-{number}") for number in range(6)]
WATCH_SECONDS = 0.005
"""Between the write of a status and its event."""


@dataclass
class Reconcile:
    """One key with a worker: it computes, then waits for the API server."""

    key: Key
    started: float
    cpu: float
    answered: float = math.inf


@dataclass
class Simulation:
    """Workers of one operator on `cores`; a reconcile takes one of `costs` seconds of CPU."""

    workers: int
    cores: int
    costs: tuple[float, float]
    write_seconds: float
    seed: int
    clock: FakeClock = field(default_factory=FakeClock)
    running: list[Reconcile] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)
    """Seconds from each event of the others to the end of the reconcile that has seen it."""

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        self.schedule: KeySchedule[Key] = KeySchedule(
            self.clock.monotonic, WorkerShares.among(self.workers), lambda key: key[0]
        )
        self.events: list[tuple[float, Key]] = []
        self.statuses: list[tuple[float, Key]] = []

    def run(self, events: list[tuple[float, Key]]) -> None:
        """Until the tenant's patches and the others' events are over, and the latter seen."""
        start = self.clock.seconds
        patches = [
            (start + number / PATCHES_PER_SECOND, key, Priority.NEW_GENERATION)
            for number in range(round(SECONDS * PATCHES_PER_SECOND))
            for key in NINE
        ]
        arrivals = patches + [(start + at, key, Priority.EVENT) for at, key in events]
        arrivals.sort(reverse=True)
        while arrivals or self.events:
            self._pass_time(arrivals[-1][0] if arrivals else math.inf)
            now = self.clock.seconds
            while arrivals and arrivals[-1][0] <= now:
                at, key, priority = arrivals.pop()
                self.schedule.add(key, priority)
                if priority is Priority.EVENT:
                    self.events.append((at, key))
            while self.statuses and self.statuses[0][0] <= now:
                self.schedule.add(self.statuses.pop(0)[1])
            self._end_reconciles()
            self._start_reconciles()
            assert now < start + SECONDS + 30, "events of others are never seen"

    def _pass_time(self, next_arrival: float) -> None:
        now = self.clock.seconds
        computing = [each for each in self.running if each.cpu > 0]
        speed = min(1.0, self.cores / len(computing)) if computing else 1.0
        moments = [next_arrival, *(now + each.cpu / speed for each in computing)]
        moments += [each.answered for each in self.running]
        moments += [at for at, _ in self.statuses[:1]]
        seconds = max(0.0, min(moments) - now) + 1e-9  # past the moment, whatever was rounded
        self.clock.advance(seconds)
        for each in computing:
            each.cpu -= seconds * speed
            if each.cpu <= 0:
                each.answered = now + seconds + self.write_seconds

    def _end_reconciles(self) -> None:
        now = self.clock.seconds
        for each in [each for each in self.running if each.answered <= now]:
            self.running.remove(each)
            self.schedule.done(each.key)
            if each.key in NINE:  # the write of its status is an event
                self.statuses.append((now + WATCH_SECONDS, each.key))
            self._note_events_seen_by(each)

    def _note_events_seen_by(self, reconcile: Reconcile) -> None:
        unseen = []
        for at, key in self.events:
            if key == reconcile.key and at <= reconcile.started:
                self.waited.append(self.clock.seconds - at)
            else:
                unseen.append((at, key))
        self.events = unseen

    def _start_reconciles(self) -> None:
        while len(self.running) < self.workers and (taken := self.schedule.take()) is not None:
            cost = self.chance.uniform(*self.costs)
            self.running.append(Reconcile(taken[0], self.clock.seconds, cost))


EVENTS = st.lists(
    st.tuples(st.floats(min_value=0, max_value=SECONDS), st.sampled_from(OTHERS)),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("cores", "costs"),
    [(2, (0.001, 0.005)), (1, (0.010, 0.020))],
    ids=["two cores", "one slow core"],
)
@settings(max_examples=8, deadline=None)
@given(events=EVENTS, seed=st.integers(min_value=0, max_value=2**32))
def test_no_event_of_another_tenant_waits_for_a_second(
    workers: int,
    cores: int,
    costs: tuple[float, float],
    events: list[tuple[float, Key]],
    seed: int,
) -> None:
    simulation = Simulation(workers, cores, costs, write_seconds=0.005, seed=seed)
    simulation.run(events)
    assert len(simulation.waited) == len(events)
    assert max(simulation.waited) < 1
