"""Older events and answers do not bring a deleted object back, for a while."""

from tests.support.faults.fake_clock import FakeClock
from tonnage import delays
from tonnage.informers.expectations import Expectations


def expectations() -> tuple[Expectations, FakeClock]:
    clock = FakeClock()
    return Expectations(lambda: clock.seconds), clock


def test_no_deletion_is_expected_at_first() -> None:
    expected, _ = expectations()
    assert not expected.is_deleted("a", 1)


def test_a_deleted_object_never_comes_back() -> None:
    expected, _ = expectations()
    expected.expect_deletion("a")
    assert expected.is_deleted("a", 10**18)
    assert not expected.is_deleted("b", 1)


def test_an_object_that_left_the_selection_comes_back_in_a_newer_version() -> None:
    expected, _ = expectations()
    expected.expect_deletion("a", 7)
    assert [expected.is_deleted("a", version) for version in (6, 7, 8)] == [True, True, False]


def test_the_newest_of_several_deletions_counts() -> None:
    for versions in ((7, 9), (9, 7)):
        expected, _ = expectations()
        for version in versions:
            expected.expect_deletion("a", version)
        assert [expected.is_deleted("a", version) for version in (9, 10)] == [True, False]
        assert len(expected) == 1


def test_a_deletion_is_forgotten_when_no_older_event_can_arrive() -> None:
    expected, clock = expectations()
    expected.expect_deletion("a")
    clock.advance(delays.EXPECTATION - 1)
    assert expected.is_deleted("a", 1)
    clock.advance(1)
    assert not expected.is_deleted("a", 1)
    assert len(expected) == 0


def test_a_repeated_deletion_lasts_as_long_as_a_new_one() -> None:
    expected, clock = expectations()
    for uid in ("a", "b"):
        expected.expect_deletion(uid)
    clock.advance(delays.EXPECTATION - 1)
    expected.expect_deletion("a")
    clock.advance(delays.EXPECTATION - 1)
    assert expected.is_deleted("a", 1)
    assert not expected.is_deleted("b", 1)


def test_only_deletions_of_the_last_minutes_take_memory() -> None:
    expected, clock = expectations()
    for number in range(1000):
        expected.expect_deletion(f"uid-{number}")
        clock.advance(delays.EXPECTATION / 10)
    assert len(expected) <= 10
