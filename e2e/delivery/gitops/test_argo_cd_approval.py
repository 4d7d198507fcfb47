"""Approval of plans with Argo CD: by a commit and by its actions."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.delivery.gitops.applications import Delivery
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, has
from e2e.models import inference

FILE = "llama.yaml"
PINNED = {
    "group": "tonnage.dev",
    "kind": "InferenceDeployment",
    "jsonPointers": ["/spec/approval", "/spec/approvedPlan"],
}


def llama(**spec: Any) -> Json:
    return inference("llama", "llama-3.1-8b", approval="Manual", **spec)


def waiting(user: User) -> str:
    """Hash of the plan that waits."""
    status = user.wait("llama", has("Ready", "False", "AwaitingApproval"), timeout=240)
    return str(status["proposedPlan"]["hash"])


def test_a_pending_plan_is_suspended_until_a_commit_approves_it(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama()})
    delivery.deploy()
    delivery.wait("Suspended")
    assert "waits for approval" in delivery.health_of("llama")["message"]
    assert user.children("deployments", "llama") == []
    delivery.commit({FILE: llama(approvedPlan=waiting(user))})
    delivery.wait("Healthy")


def test_a_failure_is_degraded_while_the_plan_that_fixes_it_is_pending(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    fails: Json = {"behaviour": "out-of-memory"}
    delivery.commit({FILE: llama(**fails)})
    delivery.deploy()
    plan = waiting(user)
    delivery.commit({FILE: llama(approvedPlan=plan, **fails)})
    delivery.wait("Degraded")
    delivery.commit({FILE: llama(approvedPlan=plan, max_model_len=16384, **fails)})
    delivery.wait("Degraded")
    waiting(user)
    # Of the failure, not of the wait.
    assert delivery.wait_message("llama", "OutOfMemory: ")["status"] == "Degraded"


def test_self_heal_keeps_the_approval_of_the_action(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama()})
    delivery.deploy()
    delivery.wait("Suspended")
    plan = waiting(user)
    assert delivery.offered("llama") == {"approve": True, "restart": True, "unpin": True}
    delivery.act("approve", "llama")
    delivery.wait("Healthy")
    assert delivery.offered("llama") == {"approve": False, "restart": True, "unpin": True}
    delivery.sync()
    assert user.get("llama")["spec"]["approvedPlan"] == plan


@pytest.mark.parametrize(
    ("ignored", "want"), [([], "Manual"), ([PINNED], "Automatic")], ids=["named", "ignored"]
)
def test_git_sets_the_approval_mode_unless_argo_cd_ignores_the_fields(
    fleet: UseFleet,
    user: User,
    delivery: Delivery,
    ignored: list[Json],
    want: str,
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama()})
    options = ("ServerSideApply=true", "RespectIgnoreDifferences=true")
    delivery.deploy(options=options, ignoreDifferences=ignored)
    delivery.wait("Suspended")
    delivery.act("unpin", "llama")
    delivery.see("llama", generation=2)
    delivery.sync()
    assert user.get("llama")["spec"]["approval"] == want


def test_the_action_restarts_the_pods_once(fleet: UseFleet, user: User, delivery: Delivery) -> None:
    fleet("tiny")
    delivery.commit({FILE: inference("llama", "llama-3.1-8b")})
    delivery.deploy()
    delivery.wait("Healthy")
    first = user.pods("llama")
    delivery.act("restart", "llama")
    user.wait_ready("llama", timeout=240)
    second = user.pods("llama")
    assert not first & second
    delivery.sync()
    delivery.wait("Healthy")
    assert user.pods("llama") == second
