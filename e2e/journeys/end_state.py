"""The end state of a namespace, in a form that can be compared between runs."""

from __future__ import annotations

from collections.abc import Iterable

from e2e.harness.admin import Admin
from e2e.journeys.user import User, condition


def everything(admin: Admin, namespace: str) -> dict[str, list[str]]:
    """The names of all children in a namespace; pods are counted, their names are random."""
    by_name = {
        kind: sorted(item["metadata"]["name"] for item in admin.items(kind, namespace))
        for kind in ("deployments", "services")
    }
    owners = [
        item["metadata"]["labels"]["tonnage.dev/inferencedeployment"]
        for item in admin.items("pods", namespace)
    ]
    return {**by_name, "pods": sorted(owners)}


def summary(user: User, names: Iterable[str]) -> dict[str, object]:
    """Where each object ended up."""
    by_name: dict[str, object] = {}
    for name in names:
        status = user.status(name)
        placements = [
            (entry["accelerator"], entry["tensorParallelSize"], entry["replicas"])
            for entry in status["placements"]
        ]
        by_name[name] = (placements, condition(status, "Ready")["status"])
    return by_name
