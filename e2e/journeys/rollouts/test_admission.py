"""A webhook that changes the Deployments and pods of the operator: they serve, and are Ready."""

from __future__ import annotations

import pytest

from e2e.doubles.webhook_server import WebhookServer
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, container, has
from e2e.models import inference
from tests.support.production.webhooks import Webhook, adding_toleration, rewriting_registry

MIRROR = "mirror.example"


@pytest.mark.parametrize(
    "webhook",
    [rewriting_registry(MIRROR), adding_toleration("team")],
    ids=["another registry", "a toleration"],
)
def test_replicas_that_a_webhook_changes_are_ready_and_stay(
    webhook: Webhook, control_plane: Stack, fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    with WebhookServer(control_plane, user.admin, webhook, user.namespace) as server:
        user.apply(inference("llama", "llama-3.1-8b"))
        user.wait_ready("llama")
        assert server.changed > 0
        pods = user.pods("llama")
        user.await_quiet()
        status, mark = user.status("llama"), user.admin.audit_mark()
        patch = {"metadata": {"annotations": {"example.com/note": "1"}}}
        user.admin.patch("infd", "llama", patch)  # an event: the operator reconciles it
        user.await_quiet()
        assert user.operator_writes(mark) == []
        assert user.status("llama")["conditions"] == status["conditions"]

        user.forget("llama")
        user.apply(inference("llama", "llama-3.1-8b", engine={"vllm": {"extraArgs": ["--seed=1"]}}))
        user.wait("llama", lambda new: new["observedGeneration"] == 2 and has("Ready")(new))
        (deployment,) = user.children("deployments", "llama")
        assert "--seed=1" in container(deployment)["args"]
        assert not user.pods("llama") & pods
