"""The token bucket lets a burst through, then its rate."""

from tests.support.fake_clock import FakeClock
from tonnage.kube.throttle import TokenBucket


def test_burst_is_free_and_then_each_waits_longer() -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate=2, burst=3, clock=clock.monotonic)
    assert [bucket.reserve() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_tokens_come_back_up_to_the_burst() -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate=2, burst=3, clock=clock.monotonic)
    for _ in range(3):
        bucket.reserve()
    clock.advance(1000)
    assert [bucket.reserve() for _ in range(4)] == [0, 0, 0, 0.5]


def test_empty_bucket_refuses_without_taking_from_the_future() -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate=1, burst=1, clock=clock.monotonic)
    assert [bucket.try_take() for _ in range(5)] == [True, False, False, False, False]
    clock.advance(1)
    assert bucket.try_take()
