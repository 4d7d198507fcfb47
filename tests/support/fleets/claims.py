"""What a plan claims is what a leader that begins reads from its status."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tonnage.fleet.model import Reservation
from tonnage.reconcile.plan import Plan
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.scheduling.admission import read_claims


def claims_in_status(plan: Plan, owner: tuple[str, str]) -> tuple[Reservation, ...]:
    """What the next leader would read; only an object that waits claims anything."""
    return read_claims(owner, plan.status) if plan.waits_for_capacity else ()


@contextmanager
def claims_compared() -> Iterator[list[tuple[Reservation, ...]]]:
    """Compare each plan's claims with its status, as long as that has space for all candidates.
    Gives the claims that were compared, plan by plan."""
    adopt = Planner.adopt
    compared: list[tuple[Reservation, ...]] = []

    def compare(self: Planner, observation: Any, plan: Plan, *given: Any) -> Plan:
        if not plan.status.omitted_candidates:
            assert plan.claims == claims_in_status(plan, observation.key)
            compared.append(plan.claims)
        return adopt(self, observation, plan, *given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Planner, "adopt", compare)
        yield compared
