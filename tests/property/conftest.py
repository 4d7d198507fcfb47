"""Properties are tried on the same examples everywhere, so that a change is judged by what it
changes and not by chance, nor by how busy the machine is: none has to be quick by the clock. New
examples are looked for by `make explore`."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.claims import claims_compared

settings.register_profile(
    "same", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile(os.environ.get("TONNAGE_PROPERTIES", "same"))


@pytest.fixture(scope="module")
def claims_stand_in_status() -> Iterator[None]:
    """Whatever is planned: a leader that begins reads from the status what the plan claims."""
    with claims_compared() as compared:
        yield
    assert any(compared), "no claim was compared"
