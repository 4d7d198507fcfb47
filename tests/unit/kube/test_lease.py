"""Leader election under fake time: which process may write, and when none may."""

import asyncio
import logging

import pytest

from tests.support.api_server.fake_api import FakeApi
from tests.support.faults.fake_clock import FakeClock
from tonnage.kube.kinds import LEASES
from tonnage.kube.lease import Clock, LeaderElector, LeaseNamespaceMissingError
from tonnage.kube.protocol import (
    ConflictError,
    ForbiddenError,
    NotFoundError,
    NotLeadingError,
    Object,
    TransientError,
)


def candidate(api: FakeApi, clock: FakeClock, identity: str, jitter: float = 0.0) -> LeaderElector:
    return LeaderElector(
        api,
        namespace="tonnage-system",
        name="tonnage",
        identity=identity,
        clock=Clock(clock.monotonic, clock.now, clock.sleep),
        jitter=lambda: jitter,
    )


@pytest.fixture
def api() -> FakeApi:
    return FakeApi()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def lease(api: FakeApi) -> Object:
    return api.object(LEASES, "tonnage-system", "tonnage")


async def test_first_candidate_leads_and_second_does_not(api: FakeApi, clock: FakeClock) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    assert await first.try_acquire_or_renew()
    assert not await second.try_acquire_or_renew()
    first.check()
    with pytest.raises(NotLeadingError, match="b does not hold lease tonnage-system/tonnage"):
        second.check()
    spec = lease(api)["spec"]
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == ("a", 12)
    assert spec["renewTime"] == "2026-01-01T00:00:00.000000Z"


async def test_candidate_that_never_tried_may_not_write(api: FakeApi, clock: FakeClock) -> None:
    with pytest.raises(NotLeadingError):
        candidate(api, clock, "a").check()


async def test_dead_holder_is_replaced_only_after_the_lease_expired(
    api: FakeApi, clock: FakeClock
) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    await second.try_acquire_or_renew()
    clock.advance(11.9)
    assert not await second.try_acquire_or_renew()
    clock.advance(0.2)
    assert await second.try_acquire_or_renew()
    spec = lease(api)["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("b", 2)


async def test_expiry_counts_from_when_a_candidate_saw_the_record(
    api: FakeApi, clock: FakeClock
) -> None:
    await candidate(api, clock, "a").try_acquire_or_renew()
    clock.advance(3600)  # the record is old by its own time, which any clock may have written
    late = candidate(api, clock, "b")
    assert not await late.try_acquire_or_renew()
    clock.advance(12)
    assert await late.try_acquire_or_renew()


async def test_renewing_holder_is_never_replaced(api: FakeApi, clock: FakeClock) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    acquired = lease(api)["spec"]["acquireTime"]
    for _ in range(30):
        clock.advance(2)
        assert await first.try_acquire_or_renew()
        assert not await second.try_acquire_or_renew()
    spec = lease(api)["spec"]
    assert (spec["leaseTransitions"], spec["acquireTime"]) == (1, acquired)


async def test_a_frozen_holder_stops_writing_before_another_candidate_can_take_over(
    api: FakeApi, clock: FakeClock
) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    await second.try_acquire_or_renew()
    clock.advance(8)  # stopped, swapped out, or blocked, without noticing
    assert not first.is_leading()
    assert not await second.try_acquire_or_renew()


@pytest.mark.parametrize("year", [1970, 2025, 2036, 9999])
@pytest.mark.parametrize("whose", ["holder", "candidate"])
async def test_a_jump_of_either_wall_clock_changes_nothing(
    api: FakeApi, clock: FakeClock, whose: str, year: int
) -> None:
    wrong = FakeClock()
    first = candidate(api, wrong if whose == "holder" else clock, "a")
    second = candidate(api, wrong if whose == "candidate" else clock, "b")
    await first.try_acquire_or_renew()
    await second.try_acquire_or_renew()
    wrong.wall = wrong.wall.replace(year=year)
    for _ in range(10):
        both_advance(clock, wrong, 2)
        assert await first.try_acquire_or_renew()
        assert not await second.try_acquire_or_renew()
    both_advance(clock, wrong, 11.9)
    assert not await second.try_acquire_or_renew()
    both_advance(clock, wrong, 0.2)
    assert await second.try_acquire_or_renew()


def both_advance(one: FakeClock, other: FakeClock, seconds: float) -> None:
    """Time passes everywhere; the wall clocks keep their distance."""
    for clock in (one, other):
        clock.advance(seconds)


async def test_a_write_has_to_end_before_another_candidate_can_take_over(
    api: FakeApi, clock: FakeClock
) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    await second.try_acquire_or_renew()
    assert first.check() == 12
    clock.advance(7.9)
    left = first.check()
    assert left == pytest.approx(4.1)
    clock.advance(left - 0.1)
    assert not await second.try_acquire_or_renew()
    clock.advance(0.1)
    assert await second.try_acquire_or_renew()


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("phase", [0.0, 0.1, 0.7, 1.3, 1.9, 2.3])
async def test_fail_over_takes_less_than_15_seconds_from_the_last_renewal(
    api: FakeApi, clock: FakeClock, phase: float, jitter: float
) -> None:
    first = candidate(api, clock, "a")
    second = candidate(api, clock, "b", jitter)
    await first.try_acquire_or_renew()
    clock.advance(phase)
    await second.try_acquire_or_renew()  # the standby reads again at its next retry
    clock.advance(0.01)
    await first.try_acquire_or_renew()
    died = clock.seconds
    clock.advance(2 * (1 + 0.2 * jitter) - 0.01)
    await asyncio.wait_for(second.acquire(), 60)
    assert 12 <= clock.seconds - died < 15


async def test_validity_counts_from_before_a_slow_renewal(api: FakeApi, clock: FakeClock) -> None:
    class SlowApi(FakeApi):
        async def put_lease(self, lease: Object) -> Object:
            clock.advance(4)
            return await super().put_lease(lease)

    holder = candidate(SlowApi(), clock, "a")
    await holder.try_acquire_or_renew()
    clock.advance(3.9)
    assert holder.is_leading()
    clock.advance(0.2)
    assert not holder.is_leading()


async def test_a_candidate_that_lost_the_swap_does_not_lead(api: FakeApi, clock: FakeClock) -> None:
    api.fail_next("put_lease", ConflictError("another candidate was faster"))
    assert not await candidate(api, clock, "a").try_acquire_or_renew()


async def test_holder_survives_failed_renewals_until_its_deadline(
    api: FakeApi, clock: FakeClock
) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    api.fail_next("put_lease", TransientError("no answer"))
    api.fail_next("get", TransientError("no answer"), times=2)
    for _ in range(3):
        clock.advance(2)
        assert await holder.try_acquire_or_renew()
    clock.advance(1)
    assert await holder.try_acquire_or_renew()
    clock.advance(7)
    assert holder.is_leading()


async def test_renewal_whose_answer_was_lost_is_repeated(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    clock.advance(2)
    api.fail_next("put_lease", TransientError("reply lost"), after=True)
    assert await holder.try_acquire_or_renew()
    clock.advance(2)
    assert await holder.try_acquire_or_renew()


async def test_a_holder_that_sees_another_one_stops_at_once(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    taken = lease(api)
    taken["spec"]["holderIdentity"] = "another replica"
    api.put(LEASES, taken)
    assert not await holder.try_acquire_or_renew()
    assert not holder.is_leading()


async def test_holder_renews_its_own_record_without_a_read(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    calls = len(api.calls)
    for _ in range(3):
        clock.advance(2)
        assert await holder.try_acquire_or_renew()
    assert [call.verb for call in api.calls[calls:]] == ["put_lease"] * 3


async def test_a_holder_recreates_its_deleted_lease(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    api.remove(LEASES, "tonnage-system", "tonnage")
    assert await holder.try_acquire_or_renew()
    assert lease(api)["spec"]["holderIdentity"] == "a"


async def test_hold_ends_when_no_api_server_answers(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    began = clock.seconds
    for verb in ("get", "put_lease"):
        api.fail_next(verb, TransientError("no answer"), times=100)
    await holder.hold()
    assert holder.lost.is_set()
    assert clock.seconds - began == 8


async def test_holder_that_overslept_has_lost_even_a_free_lease(
    api: FakeApi, clock: FakeClock
) -> None:
    async def oversleep(_: float) -> None:
        await clock.sleep(12)

    holder = LeaderElector(
        api,
        namespace="tonnage-system",
        name="tonnage",
        identity="a",
        clock=Clock(clock.monotonic, clock.now, oversleep),
    )
    await holder.try_acquire_or_renew()
    await asyncio.wait_for(holder.hold(), 60)
    assert holder.lost.is_set()
    assert not holder.is_leading()


async def test_released_lease_is_taken_at_once(api: FakeApi, clock: FakeClock) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    assert not await second.try_acquire_or_renew()
    await first.release()
    assert not first.is_leading()
    assert await second.try_acquire_or_renew()


async def test_release_of_a_lost_lease_does_not_touch_it(api: FakeApi, clock: FakeClock) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    await second.try_acquire_or_renew()
    clock.advance(16)
    await second.try_acquire_or_renew()
    await first.release()
    assert lease(api)["spec"]["holderIdentity"] == "b"


async def test_release_does_not_free_the_lease_of_another(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    taken = lease(api)
    taken["spec"]["holderIdentity"] = "b"
    api.put(LEASES, taken)
    await holder.try_acquire_or_renew()
    await holder.release()
    assert lease(api)["spec"]["holderIdentity"] == "b"


async def test_a_failed_release_raises_nothing(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    api.fail_next("put_lease", TransientError("no answer"))
    await holder.release()
    assert not holder.is_leading()


async def test_acquire_waits_until_the_lease_expires(api: FakeApi, clock: FakeClock) -> None:
    await candidate(api, clock, "a").try_acquire_or_renew()
    second = candidate(api, clock, "b")
    began = clock.seconds
    await asyncio.wait_for(second.acquire(), 60)
    assert clock.seconds - began == 12


async def test_labels_that_others_put_on_the_lease_are_kept(api: FakeApi, clock: FakeClock) -> None:
    holder = candidate(api, clock, "a")
    await holder.try_acquire_or_renew()
    labelled = lease(api)
    labelled["metadata"]["labels"] = {"team": "platform"}
    api.put(LEASES, labelled)
    await holder.try_acquire_or_renew()
    assert lease(api)["metadata"]["labels"] == {"team": "platform"}


async def test_a_missing_namespace_ends_the_wait_and_says_what_to_do(
    api: FakeApi, clock: FakeClock
) -> None:
    api.fail_next("put_lease", NotFoundError('namespaces "tonnage-system" not found'))
    with pytest.raises(LeaseNamespaceMissingError) as error:
        await candidate(api, clock, "a").acquire()
    assert str(error.value) == (
        "namespace tonnage-system of the Lease for leader election does not exist: create it "
        "(kubectl create namespace tonnage-system), or name another one by --namespace"
    )


async def test_a_lease_that_was_deleted_after_it_was_read_is_created_again(
    api: FakeApi, clock: FakeClock
) -> None:
    first, second = candidate(api, clock, "a"), candidate(api, clock, "b")
    await first.try_acquire_or_renew()
    clock.advance(3600)
    await second.try_acquire_or_renew()
    clock.advance(12)
    api.fail_next("put_lease", NotFoundError('leases "tonnage" not found'))
    assert not await second.try_acquire_or_renew()
    assert await second.try_acquire_or_renew()


@pytest.mark.parametrize(
    ("error", "want"),
    [
        (ConflictError("changed"), logging.INFO),
        (ForbiddenError("may not create leases"), logging.WARNING),
        (TransientError("no route"), logging.WARNING),
    ],
)
async def test_what_keeps_a_candidate_from_leading_is_a_warning(
    api: FakeApi,
    clock: FakeClock,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
    want: int,
) -> None:
    caplog.set_level(logging.INFO)
    api.fail_next("put_lease", error)
    assert not await candidate(api, clock, "a").try_acquire_or_renew()
    (record,) = caplog.records
    assert (record.levelno, record.getMessage()) == (want, f"lease not renewed: {error}")
