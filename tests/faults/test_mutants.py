"""Operators broken on purpose do not pass."""

import pytest

from tests.support.mutants import MUTANTS


@pytest.mark.parametrize("name", MUTANTS)
def test_an_operator_is_noticed_that(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant = MUTANTS[name]
    mutant.breaks(monkeypatch)
    try:
        found = mutant.noticed_by()
    except AssertionError as error:  # it never comes to rest
        found = str(error)
    assert found
