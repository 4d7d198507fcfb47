"""When a soak is taken for a leak."""

import pytest

from e2e.harness.failure import HarnessError
from e2e.soak import Reading, check_growth

MIB = 2**20


def readings(*figures: tuple[float, int]) -> list[Reading]:
    """Ten minutes of 100 MiB and 100 tasks, and then these."""
    all_of_them = [(100.0, 100)] * 10 + list(figures)
    return [
        Reading(minute, int(mib * MIB), tasks, depth=0, ghosts=0, unknown=0, reconciles=minute)
        for minute, (mib, tasks) in enumerate(all_of_them, 1)
    ]


def test_a_value_near_the_first_ten_minutes_is_no_leak() -> None:
    verdict = check_growth(readings((109.9, 125), (90.0, 40)))
    assert verdict == "at most 110.0 MiB and 125 tasks in 12 minutes"


@pytest.mark.parametrize("figures", [(110.1, 100), (100.0, 126)], ids=["memory", "tasks"])
def test_growth_beyond_them_is_reported_with_its_minute(figures: tuple[float, int]) -> None:
    with pytest.raises(HarnessError, match=r"minute  11.*at most 110\.0 MiB and 125 tasks"):
        check_growth(readings(figures))


def test_a_short_soak_has_nothing_to_compare_with() -> None:
    assert check_growth(readings()[:3]).endswith("in 3 minutes")
