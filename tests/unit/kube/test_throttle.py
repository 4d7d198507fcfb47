"""The token bucket lets a burst through, then its rate."""

from tests.support.faults.fake_clock import FakeClock
from tonnage.kube.throttle import TokenBucket


def test_a_burst_waits_for_nothing_and_each_further_caller_waits_longer() -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate=2, burst=3, clock=clock.monotonic)
    assert [bucket.reserve() for _ in range(5)] == [0, 0, 0, 0.5, 1.0]


def test_tokens_refill_up_to_the_burst() -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate=2, burst=3, clock=clock.monotonic)
    for _ in range(3):
        bucket.reserve()
    clock.advance(1000)
    assert [bucket.reserve() for _ in range(4)] == [0, 0, 0, 0.5]


def test_try_take_on_an_empty_bucket_takes_no_future_token() -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate=1, burst=1, clock=clock.monotonic)
    assert [bucket.try_take() for _ in range(5)] == [True, False, False, False, False]
    clock.advance(1)
    assert bucket.try_take()
