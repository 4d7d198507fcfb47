"""What a platform team and a user set on pods by podTemplate."""

from __future__ import annotations

from typing import Any, Final

from e2e.harness.rest import Json
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import await_pool, counts, declared
from e2e.journeys.user import User, condition, has
from e2e.models import inference

TEAM: Final = {"team": "chat"}
GROUP: Final[Json] = {"name": "chat", "accelerator": "h100-sxm-80gb", "labels": TEAM}


def pool(**security_context: Any) -> Json:
    """The nodes of the team, with these changes of the security context of pods."""
    spec = {"securityContext": security_context, "runtimeClassName": None}
    return declared("chat", TEAM, podTemplate={"spec": spec})


def pod_of(user: User) -> Json:
    """The only pod that is to stay."""
    (pod,) = (
        pod for pod in user.children("pods", "llama") if "deletionTimestamp" not in pod["metadata"]
    )
    return pod


def test_pool_and_user_change_the_pods_and_a_change_of_the_pool_waits_for_the_user(
    fleet: UseFleet, declare: Declare, user: User
) -> None:
    fleet({"groups": [GROUP]})
    declare(pool(runAsUser=None, runAsGroup=None, fsGroup=None))
    await_pool(user.admin, "chat", lambda pool: counts(pool)[0] > 0, why="the pool of the team")
    model = inference("llama", "llama-3.1-8b")
    fetch = {"name": "fetch", "image": "registry.example/fetch:1"}
    probe = {"name": "vllm", "startupProbe": {"failureThreshold": 500}}
    user_spec = {"initContainers": [fetch], "containers": [probe], "dnsPolicy": "Default"}
    model["spec"]["podTemplate"] = {"spec": user_spec}
    user.apply(model)
    user.wait_ready("llama")
    before = pod_of(user)
    context = before["spec"]["securityContext"]
    assert not {"runAsUser", "runAsGroup", "fsGroup"} & context.keys(), "null removes a field"
    assert context["runAsNonRoot"] is True
    assert [one["name"] for one in before["spec"]["initContainers"]] == ["fetch"]
    (vllm,) = before["spec"]["containers"]
    assert vllm["startupProbe"]["failureThreshold"] == 500
    assert vllm["startupProbe"]["httpGet"]["path"] == "/health", "the rest of the probe stays"
    assert before["spec"]["dnsPolicy"] == "Default"
    user.await_quiet()

    declare(pool(runAsUser=1000, runAsGroup=None, fsGroup=None))
    status = user.wait("llama", lambda status: "availableUpdate" in status, timeout=90)
    assert "podTemplate of AcceleratorPool chat" in status["availableUpdate"]["message"]
    assert pod_of(user)["metadata"]["uid"] == before["metadata"]["uid"]
    model["spec"]["rollout"] = {"upgradedAt": "2026-01-01T00:00:00Z"}
    user.apply(model)
    user.wait("llama", lambda status: "availableUpdate" not in status, timeout=90)
    user.wait_ready("llama", timeout=90)
    assert pod_of(user)["spec"]["securityContext"]["runAsUser"] == 1000


def test_what_the_plan_rests_on_is_refused_with_the_field_to_use(
    fleet: UseFleet, user: User
) -> None:
    fleet({"groups": [GROUP]})
    model = inference("llama", "llama-3.1-8b")
    container = {"name": "vllm", "image": "registry.example/vllm:1"}
    model["spec"]["podTemplate"] = {"spec": {"containers": [container]}}
    user.apply(model)
    status = user.wait("llama", has("Accepted", "False", "InvalidSpec"))
    assert "spec.engine.vllm.image" in condition(status, "Accepted")["message"]
    assert user.children("deployments", "llama") == []
