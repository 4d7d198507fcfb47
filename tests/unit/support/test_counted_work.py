"""The counter that tests of growth count with sees loops, wherever they are written."""

from collections.abc import Callable

import pytest

from tests.support.foreign.counted_work import TooMuchWorkError, counted_work


def on_many_lines(size: int) -> int:
    total = 0
    for number in range(size):
        total += number
    return total


def on_one_line(size: int) -> int:
    return len([number for number in range(size)])  # noqa: C416 - the loop is what is counted


def in_a_generator(size: int) -> int:
    return sum(number for number in range(size))


def of_calls(size: int) -> int:
    return len(list(map(lambda number: number, range(size))))  # noqa: C417 - likewise


def while_it_lasts(size: int) -> int:
    while size > 0:
        size -= 1
    return size


@pytest.mark.parametrize(
    "loop", [on_many_lines, on_one_line, in_a_generator, of_calls, while_it_lasts]
)
def test_each_iteration_counts(loop: Callable[[int], int]) -> None:
    with counted_work(10_000) as short:
        loop(100)
    with counted_work(10_000) as long:
        loop(1100)
    assert long.lines - short.lines >= 1000


def test_equal_work_has_an_equal_count() -> None:
    line_counts = []
    for _ in range(3):
        with counted_work(10_000) as work:
            on_many_lines(500)
        line_counts.append(work.lines)
    assert len(set(line_counts)) == 1


def test_endless_work_is_aborted() -> None:
    with pytest.raises(TooMuchWorkError, match="more than 1000 lines ran"), counted_work(1000):
        while_it_lasts(10**12)
