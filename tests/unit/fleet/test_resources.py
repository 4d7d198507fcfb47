"""CPU, memory and ephemeral storage, added and compared."""

import pytest

from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources, least, most

GIB = 2**30
REPLICA = Resources(2000, 10 * GIB, 0)


def test_requests_are_added_and_subtracted_but_never_below_nothing() -> None:
    assert REPLICA.plus(REPLICA) == REPLICA.times(2)
    assert REPLICA.minus(Resources(500, 20 * GIB, 1)) == Resources(1500, 0, 0)


@pytest.mark.parametrize(
    ("has", "want"),
    [
        (Resources(8000, 100 * GIB, 0), 4),
        (Resources(8000, 39 * GIB, 0), 3),
        (Resources(1999, 100 * GIB, 0), 0),
        (UNKNOWN_SIZE, 8),
    ],
)
def test_the_scarcest_resource_decides_how_many_replicas_fit(has: Resources, want: int) -> None:
    assert has.fitting(REPLICA, 8) == want
    assert has.covers(REPLICA) == (want > 0)


def test_the_part_of_a_gpu_is_rounded_down_and_bounded() -> None:
    assert Resources(8900, 17 * GIB, 9 * GIB).for_each(8) == Resources(1000, 2 * GIB, GIB)
    assert UNKNOWN_SIZE.for_each(8) == Resources(64_000, 1024 * GIB, 8192 * GIB)


def test_a_size_is_rounded_up() -> None:
    assert Resources(1001, GIB + 1, GIB).rounded_up() == Resources(2000, 2 * GIB, GIB)


def test_the_least_and_the_most_of_each_kind() -> None:
    both = [Resources(1, 4, 5), Resources(2, 3, 6)]
    assert least(both) == Resources(1, 3, 5)
    assert most(both) == Resources(2, 4, 6)
    assert (least([]), most([])) == (UNKNOWN_SIZE, NOTHING)
