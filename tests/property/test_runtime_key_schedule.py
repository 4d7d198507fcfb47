"""Whatever happens in whatever order: no key is in work twice, and none is lost."""

import math

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.support.fake_clock import FakeClock
from tonnage.runtime.key_schedule import KeySchedule
from tonnage.runtime.others_at_once import (
    CROWD_SECONDS,
    LONG_SECONDS,
    WISH_SECONDS,
    OthersAtOnce,
)
from tonnage.runtime.priority import Priority

KEYS = st.sampled_from("abcd")


class KeyScheduleMachine(RuleBasedStateMachine):
    """The model: `wanted` since when, `delayed` until when, `working` on what, and on which
    `others` among that, which were no wishes."""

    usually, beside_wishes = math.inf, math.inf
    rest_for_work = 0

    def __init__(self) -> None:
        super().__init__()
        self.clock = FakeClock()
        others: OthersAtOnce[str] = OthersAtOnce(self.usually, self.beside_wishes)
        self.schedule: KeySchedule[str] = KeySchedule(self.clock.monotonic, others)
        self.wanted: dict[str, Priority] = {}
        self.delayed: dict[str, float] = {}
        self.working: set[str] = set()
        self.others: dict[str, float] = {}
        self.first_wish = self.last_wish = -math.inf
        self.rests_until = -math.inf

    @rule(key=KEYS, priority=st.sampled_from(Priority))
    def add(self, key: str, priority: Priority) -> None:
        assert self.schedule.add(key, priority) == (key not in self.wanted)
        self.wanted[key] = min(priority, self.wanted.get(key, priority))

    @rule(key=KEYS, seconds=st.integers(min_value=-1, max_value=5))
    def add_after(self, key: str, seconds: int) -> None:
        self.schedule.add_after(key, seconds)
        due = self.clock.seconds + max(0, seconds)
        self.delayed[key] = min(due, self.delayed.get(key, due))

    @rule(seconds=st.sampled_from([0.25, 0.5, 1, 5]))
    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def take(self) -> None:
        self._let_due_ones_be_wanted()
        taken = self.schedule.take()
        ready = self.wanted.keys() - self.working
        if not self._has_room(self.clock.seconds):
            ready = {key for key in ready if self.wanted[key] is Priority.NEW_GENERATION}
        if taken is None:
            assert not ready
            return
        key, waited = taken
        assert waited >= 0
        assert key in self.wanted
        assert key not in self.working
        assert self.wanted[key] == min(self.wanted[each] for each in ready)
        if self.wanted.pop(key) is Priority.NEW_GENERATION:
            if self.clock.seconds - self.last_wish >= WISH_SECONDS:
                self.first_wish = self.clock.seconds
            self.last_wish = self.clock.seconds
        else:
            self.others[key] = self.clock.seconds
        self.delayed.pop(key, None)
        self.working.add(key)

    @precondition(lambda self: self.working)
    @rule(data=st.data())
    def done(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.working)))
        self.schedule.done(key)
        self.working.remove(key)
        if key in self.others:
            now = self.clock.seconds
            worked = min(now - self.others.pop(key), LONG_SECONDS)
            self.rests_until = now + worked * self.rest_for_work

    @invariant()
    def whoever_waits_is_woken_when_there_is_something_to_take(self) -> None:
        now = self.clock.seconds
        moments = [due - now for due in self.delayed.values()]
        if any(
            self.wanted[key] > Priority.NEW_GENERATION for key in self.wanted.keys() - self.working
        ):
            later = (seconds / 4 for seconds in range(int(WISH_SECONDS * 4) + 1))
            moments += [next((each for each in later if self._has_room(now + each)), math.inf)]
        soonest = min(moments, default=math.inf)
        expected = None if soonest == math.inf else max(0.0, soonest)
        assert self.schedule.seconds_to_next() == expected

    @invariant()
    def depth_counts_what_is_ready(self) -> None:
        assert self.schedule.depth == len(self.wanted.keys() - self.working)

    def teardown(self) -> None:
        """Everything that was ever asked for comes out in the end."""
        for key in self.working:
            self.schedule.done(key)
        self.clock.advance(100)
        self._let_due_ones_be_wanted()
        left = set()
        while (taken := self.schedule.take()) is not None:
            left.add(taken[0])
            self.schedule.done(taken[0])
        assert left == self.wanted.keys()

    def _has_room(self, now: float) -> bool:
        if now - self.last_wish >= WISH_SECONDS:
            return len(self.others) < self.usually
        quick = [each for each in self.others.values() if now - each < LONG_SECONDS]
        is_room = len(self.others) < self.usually and len(quick) < max(1, self.beside_wishes)
        return is_room and now >= min(self.rests_until, self.first_wish + CROWD_SECONDS)

    def _let_due_ones_be_wanted(self) -> None:
        due = {key for key, moment in self.delayed.items() if moment <= self.clock.seconds}
        for key in due:
            del self.delayed[key]
            self.wanted[key] = min(Priority.EVENT, self.wanted.get(key, Priority.EVENT))


class WithWorkersKeptForWishes(KeyScheduleMachine):
    """The same where three other keys are processed at a time, and beside wishes one."""

    usually, beside_wishes = 3, 1


class WithRestBesideWishes(KeyScheduleMachine):
    """The same where beside wishes one is processed in a quarter of the time."""

    usually, beside_wishes = 3, 0.25
    rest_for_work = 3


TestKeySchedule = KeyScheduleMachine.TestCase
TestKeySchedule.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestWithWorkersKeptForWishes = WithWorkersKeptForWishes.TestCase
TestWithWorkersKeptForWishes.settings = TestKeySchedule.settings
TestWithRestBesideWishes = WithRestBesideWishes.TestCase
TestWithRestBesideWishes.settings = TestKeySchedule.settings
