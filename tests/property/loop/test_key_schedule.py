"""In any order of events, no key is processed twice at once, none is lost, and none is
overtaken by more than a bounded number of others."""

import math
from collections import Counter, defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from tests.support.faults.fake_clock import FakeClock
from tonnage.controller.queueing.key_schedule import KeySchedule
from tonnage.controller.queueing.priority import Priority, WorkerShares

KEYS = st.sampled_from(["a1", "a2", "a3", "b1", "b2", "c1", "c2", "d1"])
PRIORITIES = st.sampled_from(Priority)


def namespace_of(key: str) -> str:
    return key[0]


def passes_of(priority: Priority, other: Priority) -> int:
    """How often `other` may start between two starts of `priority`, by the default weights."""
    weights = WorkerShares().weights
    return weights[other] // weights[priority] + 1


class KeyScheduleMachine(RuleBasedStateMachine):
    """The model: `ready` keys with their times and, for each priority, their `arrivals` in order;
    `delayed` until when; the keys that are `processing`, and the `dirty` among them.

    `passes` counts, since a priority started and while it could have, the starts of the others;
    `visits`, since a namespace started at a priority and while it had keys, those of the others.
    """

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        self.ready: dict[str, float] = {}
        self.arrivals: dict[Priority, list[str]] = {priority: [] for priority in Priority}
        self.delayed: dict[str, tuple[float, Priority]] = {}
        self.processing: dict[str, Priority] = {}
        self.dirty: dict[str, Priority] = {}
        self.passes: defaultdict[Priority, Counter[Priority]] = defaultdict(Counter)
        self.visits: defaultdict[tuple[Priority, str], Counter[str]] = defaultdict(Counter)

    @initialize(workers=st.sampled_from([None, 1, 2, 3, 4, 6]))
    def start(self, workers: int | None) -> None:
        self.shares = WorkerShares() if workers is None else WorkerShares.among(workers)
        self.schedule = KeySchedule(self.clock.monotonic, self.shares, namespace_of)

    @rule(key=KEYS, priority=PRIORITIES)
    def add(self, key: str, priority: Priority) -> None:
        is_new = key not in self.ready and key not in self.dirty
        assert self.schedule.add(key, priority) == is_new
        self._model_add(key, priority)

    @rule(key=KEYS, seconds=st.integers(min_value=-1, max_value=5), priority=PRIORITIES)
    def add_after(self, key: str, seconds: int, priority: Priority) -> None:
        self.schedule.add_after(key, seconds, priority)
        due = self.clock.seconds + max(0, seconds)
        earlier, highest = self.delayed.get(key, (math.inf, priority))
        if due < earlier:  # of equal times the one that was asked for first comes first
            self.delayed.pop(key, None)
        self.delayed[key] = (min(due, earlier), min(priority, highest))

    @rule(seconds=st.sampled_from([0.25, 1, 5]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def take(self) -> None:
        self._model_promote_due()
        candidates = {each for each in Priority if self.arrivals[each] and self._may_start(each)}
        taken = self.schedule.take()
        if taken is None:
            assert not candidates
            return
        key, waited = taken
        assert key not in self.processing
        assert waited == self.clock.seconds - self.ready[key]
        priority = next(each for each, keys in self.arrivals.items() if key in keys)
        assert priority in candidates
        self._check_order_in_namespace(key, priority)
        self._check_passes(priority, candidates)
        self._check_visits(namespace_of(key), priority)
        self._model_start(key, priority)

    @precondition(lambda self: self.processing)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        self._done(data.draw(st.sampled_from(sorted(self.processing))))

    @invariant()
    def a_worker_that_waits_is_woken_when_a_delay_is_over(self) -> None:
        soonest = min((due for due, _ in self.delayed.values()), default=None)
        expected = None if soonest is None else max(0.0, soonest - self.clock.seconds)
        assert self.schedule.seconds_to_next() == expected

    @invariant()
    def depth_counts_what_is_ready(self) -> None:
        assert self.schedule.depth == len(self.ready)

    @invariant()
    def no_priority_has_workers_that_are_kept_for_others(self) -> None:
        running = Counter(self.processing.values())
        kept = self.shares.kept
        assert sum(max(running[each], kept.get(each, 0)) for each in Priority) <= (
            self.shares.workers
        )

    def teardown(self) -> None:
        """Everything that was ever added comes out in the end."""
        if not hasattr(self, "schedule"):
            return
        for key in list(self.processing):
            self._done(key)
        self.clock.advance(100)
        while self.ready or self.delayed:
            before = len(self.ready) + len(self.delayed)
            self.take()
            assert len(self.ready) + len(self.delayed) < before
            for key in list(self.processing):
                self._done(key)
        assert self.schedule.take() is None

    def _done(self, key: str) -> None:
        self.schedule.done(key)
        del self.processing[key]
        if key in self.dirty:
            self._model_add(key, self.dirty.pop(key))

    def _check_order_in_namespace(self, key: str, priority: Priority) -> None:
        same_namespace = [
            each for each in self.arrivals[priority] if namespace_of(each) == namespace_of(key)
        ]
        assert same_namespace[0] == key

    def _check_passes(self, priority: Priority, candidates: set[Priority]) -> None:
        self.passes[priority].clear()
        for other in candidates - {priority}:
            self.passes[other][priority] += 1
            assert self.passes[other][priority] <= passes_of(other, priority)

    def _check_visits(self, namespace: str, priority: Priority) -> None:
        self.visits[priority, namespace].clear()
        for other in {namespace_of(each) for each in self.arrivals[priority]} - {namespace}:
            self.visits[priority, other][namespace] += 1
            assert self.visits[priority, other][namespace] <= 1

    def _model_start(self, key: str, priority: Priority) -> None:
        del self.ready[key]
        self._model_leave(key, priority)
        self.delayed.pop(key, None)
        self.processing[key] = priority

    def _model_leave(self, key: str, priority: Priority) -> None:
        self.arrivals[priority].remove(key)
        if namespace_of(key) not in {namespace_of(each) for each in self.arrivals[priority]}:
            self.visits[priority, namespace_of(key)].clear()

    def _model_add(self, key: str, priority: Priority) -> None:
        if key in self.processing:
            self.dirty[key] = min(priority, self.dirty.get(key, priority))
            return
        for each, keys in self.arrivals.items():
            if key in keys and each <= priority:
                return
            if key in keys:
                self._model_leave(key, each)
        self.arrivals[priority].append(key)
        self.ready.setdefault(key, self.clock.seconds)

    def _model_promote_due(self) -> None:
        for key, (due, priority) in sorted(self.delayed.items(), key=lambda item: item[1][0]):
            if due <= self.clock.seconds:
                del self.delayed[key]
                self._model_add(key, priority)

    def _may_start(self, priority: Priority) -> bool:
        """A worker that is kept for the priority is free, or one that is kept for none."""
        running, kept = Counter(self.processing.values()), self.shares.kept
        free = self.shares.workers - len(self.processing)
        free -= sum(
            max(0, kept.get(each, 0) - running[each]) for each in Priority if each is not priority
        )
        return free > 0


TestKeySchedule = KeyScheduleMachine.TestCase
TestKeySchedule.settings = settings(max_examples=300, stateful_step_count=50, deadline=None)


ADDITIONS = st.lists(st.tuples(KEYS, PRIORITIES), max_size=12)


@settings(max_examples=300, deadline=None)
@given(before=ADDITIONS, key=KEYS, priority=PRIORITIES, meanwhile=st.lists(ADDITIONS, min_size=1))
def test_a_ready_key_is_overtaken_by_a_bounded_number_of_others(
    before: list[tuple[str, Priority]],
    key: str,
    priority: Priority,
    meanwhile: list[list[tuple[str, Priority]]],
) -> None:
    """A key at position i of its namespace, where n namespaces have keys of its priority, starts
    with the (i + 1) * n-th of its priority at the latest, and before each of these every other
    priority starts a bounded number of keys. That holds for whatever is added meanwhile."""
    schedule = KeySchedule(FakeClock().monotonic, namespace_of=namespace_of)
    added = dict(reversed(before))
    for other, its_priority in added.items():
        if other != key:
            schedule.add(other, its_priority)
    schedule.add(key, priority)
    position = sum(
        1
        for other, its_priority in added.items()
        if its_priority is priority and other != key and other[0] == key[0]
    )
    namespaces = {"a", "b", "c", "d"}
    rounds = (position + 1) * len(namespaces)
    each_round = 1 + sum(passes_of(priority, each) for each in Priority if each is not priority)
    for number in range(rounds * each_round):
        taken = schedule.take()
        assert taken is not None
        if taken[0] == key:
            return
        schedule.done(taken[0])
        for other, its_priority in meanwhile[number % len(meanwhile)]:
            if other != key:
                schedule.add(other, its_priority)
    raise AssertionError(f"{key} has not started after {rounds * each_round} others")
