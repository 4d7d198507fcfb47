"""What is known to be gone stays gone for older news, for a while."""

from tests.support.fake_clock import FakeClock
from tonnage import delays
from tonnage.informers.expectations import Expectations


def expectations() -> tuple[Expectations, FakeClock]:
    clock = FakeClock()
    return Expectations(lambda: clock.seconds), clock


def test_nothing_is_expected_at_first() -> None:
    found, _ = expectations()
    assert not found.is_deleted("a", 1)


def test_what_the_api_server_has_deleted_never_comes_back() -> None:
    found, _ = expectations()
    found.expect_deletion("a")
    assert found.is_deleted("a", 10**18)
    assert not found.is_deleted("b", 1)


def test_what_a_watch_does_not_show_any_more_comes_back_in_a_newer_version() -> None:
    found, _ = expectations()
    found.expect_deletion("a", 7)
    assert [found.is_deleted("a", version) for version in (6, 7, 8)] == [True, True, False]


def test_the_newest_of_several_deletions_counts() -> None:
    for versions in ((7, 9), (9, 7)):
        found, _ = expectations()
        for version in versions:
            found.expect_deletion("a", version)
        assert [found.is_deleted("a", version) for version in (9, 10)] == [True, False]
        assert len(found) == 1


def test_a_deletion_is_forgotten_when_no_older_news_can_come() -> None:
    found, clock = expectations()
    found.expect_deletion("a")
    clock.advance(delays.EXPECTATION - 1)
    assert found.is_deleted("a", 1)
    clock.advance(1)
    assert not found.is_deleted("a", 1)
    assert len(found) == 0


def test_a_deletion_that_is_known_again_lasts_as_long_as_a_new_one() -> None:
    found, clock = expectations()
    for uid in ("a", "b"):
        found.expect_deletion(uid)
    clock.advance(delays.EXPECTATION - 1)
    found.expect_deletion("a")
    clock.advance(delays.EXPECTATION - 1)
    assert found.is_deleted("a", 1)
    assert not found.is_deleted("b", 1)


def test_only_deletions_of_the_last_minutes_take_memory() -> None:
    found, clock = expectations()
    for number in range(1000):
        found.expect_deletion(f"uid-{number}")
        clock.advance(delays.EXPECTATION / 10)
    assert len(found) <= 10
