"""A look back at all that operators with the shipped role did in this session; it comes last."""

from __future__ import annotations

from e2e.admin import Admin
from e2e.operator_process import USER
from e2e.rest import Json
from e2e.rights import denied, granted, used


def test_nothing_of_the_shipped_role_was_unused_and_nothing_beyond_it_was_needed(
    exercised: int, installed: Admin, roles: list[Json]
) -> None:
    events = installed.requests(USER)
    assert granted(roles) - used(events, roles) == set()
    # What an optional role grants is asked for in vain where nobody gave it.
    shipped = {(right.group, right.resource) for right in granted(roles)}
    assert denied(events, shipped) == []
