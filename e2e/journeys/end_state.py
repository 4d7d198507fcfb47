"""Where a namespace ended up, as far as one way there can be compared with another."""

from __future__ import annotations

from collections.abc import Iterable

from e2e.harness.admin import Admin
from e2e.journeys.user import User, condition


def everything(admin: Admin, namespace: str) -> dict[str, list[str]]:
    """The names of all children in a namespace; pods are counted, their names are random."""
    found = {
        kind: sorted(item["metadata"]["name"] for item in admin.items(kind, namespace))
        for kind in ("deployments", "services")
    }
    owners = [
        item["metadata"]["labels"]["tonnage.dev/inferencedeployment"]
        for item in admin.items("pods", namespace)
    ]
    return {**found, "pods": sorted(owners)}


def summary(user: User, names: Iterable[str]) -> dict[str, object]:
    """Where each object ended up."""
    found: dict[str, object] = {}
    for name in names:
        status = user.status(name)
        placements = [
            (entry["accelerator"], entry["tensorParallelSize"], entry["replicas"])
            for entry in status["placements"]
        ]
        found[name] = (placements, condition(status, "Ready")["status"])
    return found
