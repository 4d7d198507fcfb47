"""What properties of the whole operator have in common."""

from collections.abc import Iterator

import pytest

from tests.support.fleets.claims import claims_compared


@pytest.fixture(scope="module")
def claims_stand_in_status() -> Iterator[None]:
    """Whatever is planned: a leader that begins reads from the status what the plan claims."""
    with claims_compared() as compared:
        yield
    assert any(compared), "no claim was compared"
