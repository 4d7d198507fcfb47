"""The shipped role grants exactly the permissions that the operator uses."""

from __future__ import annotations

from e2e.harness.admin import Admin
from e2e.harness.operator_process import CORRECTIONS, USER
from e2e.harness.rest import Json
from e2e.rights import USED_LATE, denied, granted, used


def test_every_granted_permission_is_used_and_no_request_is_denied(
    exercised: int, installed: Admin, roles: list[Json]
) -> None:
    events = installed.requests(USER, since=exercised)
    assert denied(events) == []
    # A slow machine may come to what is used late.
    assert granted(roles) - used(events, roles) <= USED_LATE <= granted(roles)


def test_secrets_and_config_maps_are_requested_by_name(exercised: int, installed: Admin) -> None:
    asked = [
        event["objectRef"]
        for event in installed.requests(USER, since=exercised)
        if event.get("objectRef", {}).get("resource") in ("secrets", "configmaps")
    ]
    assert {reference["resource"] for reference in asked} == {"secrets", "configmaps"}
    # A request that makes an object names none.
    named = {reference["name"] for reference in asked if "name" in reference}
    assert named <= {"facts", "hf", CORRECTIONS}


def test_no_rule_has_a_wildcard(roles: list[Json]) -> None:
    assert not {right for right in granted(roles) if "*" in "".join(right)}
    rules = [rule for role in roles for rule in role["rules"] if "secrets" in rule["resources"]]
    assert [(rule["verbs"], rule["resourceNames"]) for rule in rules] == [(["get"], ["hf"])]
