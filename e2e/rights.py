"""Permissions that roles grant, and those that the audit log shows as used, in one form."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import yaml

from e2e.harness.admin import Admin
from e2e.harness.rest import Json

_ROLES = ("ClusterRole", "Role")
_CANNOT = '" cannot '  # the authorizer: User "somebody" cannot patch resource "deployments" ...
_POLICY = "ValidatingAdmissionPolicy 'tonnage-"
_REASON = "authorization.k8s.io/reason"


class Right(NamedTuple):
    """One verb on one resource; a subresource stands behind a slash."""

    group: str
    resource: str
    verb: str


USED_LATE = {Right("events.k8s.io", "events", "list")}
"""Used after two minutes in which a pod does not come up: journeys/ try that."""


def roles_of(admin: Admin, folder: Path) -> list[Json]:
    """The operator's Roles and ClusterRoles in a kustomization: those that it binds."""
    documents = list(yaml.safe_load_all(admin.kubectl("kustomize", str(folder))))
    references = [body["roleRef"] for body in documents if "roleRef" in body]
    bound = {(reference["kind"], reference["name"]) for reference in references}
    return [
        body
        for body in documents
        if body["kind"] in _ROLES and (body["kind"], body["metadata"]["name"]) in bound
    ]


def granted(roles: Iterable[Json]) -> set[Right]:
    """What the rules of these roles allow, one by one."""
    return {
        Right(group, resource, verb)
        for role in roles
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(events: Iterable[Json], roles: Iterable[Json]) -> set[Right]:
    """What was asked for in these audit events, and allowed by a binding of one of the roles."""
    names = {role["metadata"]["name"] for role in roles}
    return {right for event in events if _allowed_by(event) in names for right in _rights_of(event)}


def denied(
    events: Iterable[Json], resources: Container[tuple[str, str]] | None = None
) -> list[str]:
    """Requests that no role allowed: verb and path of each, of these resources where some are
    given. A quota or an admission answers 403 too, and is not meant."""
    return [
        f"{event['verb']} {event['requestURI']}"
        for event in events
        if event["responseStatus"]["code"] == 403
        and _CANNOT in event["responseStatus"].get("message", "")
        and (resources is None or _resource_of(event) in resources)
    ]


def refused_by_policies(events: Iterable[Json]) -> list[str]:
    """Requests that an admission policy of the operator refused: the path and the message of
    each."""
    return [
        f"{event['requestURI']}: {event['responseStatus']['message']}"
        for event in events
        if event["responseStatus"]["code"] == 403
        and _POLICY in event["responseStatus"].get("message", "")
    ]


def _resource_of(event: Json) -> tuple[str, str]:
    what = event.get("objectRef", {})
    parts = (what.get("resource"), what.get("subresource"))
    return what.get("apiGroup", ""), "/".join(part for part in parts if part)


def _rights_of(event: Json) -> Iterator[Right]:
    group, resource = _resource_of(event)
    yield Right(group, resource, event["verb"])
    # A server-side apply that makes the object is authorised twice; the log has only the patch.
    if event["verb"] == "patch" and event["responseStatus"]["code"] == 201:
        yield Right(group, resource, "create")


def _allowed_by(event: Json) -> str:
    """The role in "RBAC: allowed by RoleBinding "x/y" of Role "y" to ServiceAccount ..."."""
    reason = event.get("annotations", {}).get(_REASON, "")
    _, _, role = reason.partition('Role "')
    return role.partition('"')[0] if "objectRef" in event else ""
