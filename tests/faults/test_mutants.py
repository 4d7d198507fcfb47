"""The tests detect operators that are broken on purpose."""

import pytest

from tests.support.faults.mutants import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_the_tests_detect_an_operator_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.breaks(monkeypatch)
    try:
        evidence = mutant.noticed_by()
    except AssertionError as error:  # it never comes to rest
        evidence = str(error)
    assert evidence
