"""An operator without patience, and objects that get into trouble which is over a minute before it
learns of that."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from e2e.doubles.fault_proxy import Call, FaultProxy, refused
from e2e.harness.admin import SLOW
from e2e.harness.operator_process import OperatorProcess, install
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.user import User, has
from e2e.models import inference

DEADLINE = 3.0
"""Seconds for a reconcile, instead of 120: who waits for an answer that never comes ends sooner."""


ROLE_REVOKED = (
    'deployments.apps "denied" is forbidden: User "tonnage" cannot patch resource "deployments"'
    ' in API group "apps" in the namespace "chat"'
)
"""The words of the authorizer of RBAC."""


def impatient(stack: Stack, folder: Path, proxy: FaultProxy) -> OperatorProcess:
    """An operator that reaches the API server through the proxy only."""
    environment = {
        "TONNAGE_RECONCILE_DEADLINE_SECONDS": f"{DEADLINE:g}",
        "TONNAGE_DRAIN_SECONDS": "2",
    }
    return OperatorProcess(stack, folder, environment=environment, server=proxy.url)


@dataclass(frozen=True)
class Troubled:
    """Objects whose trouble is over, of which the operator learns a minute later.

    `statuses` are those that they had in it, `since` is when it was over, in seconds since 1970.
    """

    user: User
    operator: OperatorProcess
    statuses: dict[str, Json]
    since: float


def get_into_trouble(user: User, operator: OperatorProcess, proxy: FaultProxy) -> Troubled:
    """A quota and a role are asked again after 60 s, a silent watch is given up after 70: all at
    once, so that they cost one minute."""
    install(user.admin)
    operator.start()
    user.admin.until("the operator to lead", lambda: operator.leads, timeout=SLOW)
    for name in ("concerned", "denied"):
        user.apply(inference(name, "llama-3.1-8b"))
        user.wait_ready(name, timeout=SLOW)
    none_more = {"hard": {"count/services": "2"}}
    metadata = {"name": "none-more"}
    user.admin.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": none_more}
    )
    user.admin.wait_for(
        "resourcequotas", "none-more", lambda quota: quota.get("status"), timeout=SLOW
    )

    def patches_denied(call: Call) -> bool:
        return call.is_write and f"/{user.namespace}/deployments/denied" in call.path

    with proxy.inject(patches_denied, refused(403, "Forbidden", ROLE_REVOKED)):
        user.apply(inference("denied", "llama-3.1-8b", max_model_len=8192))
        user.apply(inference("beyond-quota", "llama-3.1-8b"))
        statuses = {
            name: user.wait(name, refused_for, timeout=SLOW)
            for name, refused_for in (
                ("denied", has("Ready", "False", "Forbidden")),
                ("beyond-quota", has("Accepted", "False", "ChildRefused")),
            )
        }
    assert proxy.mute_watches() > 0
    user.admin.delete("resourcequotas", "none-more")
    user.apply(inference("concerned", "llama-3.1-8b", max_model_len=8192))
    return Troubled(user, operator, statuses, time.time())
