"""The threat model names tests, and each of them is there."""

import re
from pathlib import Path

import pytest

PAGE = Path("SECURITY.md").read_text("utf-8")
ROWS = [line for line in PAGE.splitlines() if "::test_" in line]


def named(row: str) -> list[tuple[Path, str]]:
    """The tests in the last column; one that begins with `::` is in the file of the one before."""
    found, path = [], ""
    for file, test in re.findall(r"`([\w/.]*)::(test_\w+)`", row):
        path = file or path
        found.append((Path(path), test))
    return found


def test_there_are_rows() -> None:
    assert len(ROWS) > 15


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_a_row_names_tests_that_exist(row: str) -> None:
    tests = named(row)
    assert len(tests) == row.count("::")
    for path, test in tests:
        assert re.search(rf"def {test}\(", path.read_text("utf-8")), test
