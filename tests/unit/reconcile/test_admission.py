"""Admission webhooks that change what the operator applies."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import ready, without_image
from tests.support.in_memory.serving import SETTLED
from tests.support.production.webhooks import Webhook, adding_toleration, rewriting_registry
from tonnage.kube.kinds import DEPLOYMENTS, PODS
from tonnage.kube.protocol import Object

MIRROR = "mirror.example"
DEPLOYMENT = "llama-mi300x"


def dropping_a_variable() -> Webhook:
    """Removes a variable from every container."""

    def drop(spec: dict[str, Any]) -> None:
        for container in spec["containers"]:
            container["env"] = [one for one in container["env"] if one["name"] != "DO_NOT_TRACK"]

    return Webhook((DEPLOYMENTS,), change=drop)


WEBHOOKS: dict[str, Callable[[], Webhook]] = {
    "another registry": lambda: rewriting_registry(MIRROR),
    "another registry, of Deployments alone": lambda: rewriting_registry(MIRROR, DEPLOYMENTS),
    "another registry, of pods alone": lambda: rewriting_registry(MIRROR, PODS),
    "a toleration": lambda: adding_toleration("team"),
    "a toleration, of Deployments alone": lambda: adding_toleration("team", DEPLOYMENTS),
    "a variable less": dropping_a_variable,
}


def without_image_for_a_seed(pod: Object) -> Object:
    """Pods with a seed have no image, all others serve."""
    has_seed = "--seed=1" in pod["spec"]["containers"][0]["args"]
    return without_image(pod) if has_seed else ready(pod)


async def admitted(webhook: Webhook, **spec: object) -> Cluster:
    cluster = Cluster(MI300X)
    cluster.webhooks.append(webhook)
    cluster.apply("llama", spec_of(**spec))
    await cluster.settle()
    return cluster


@pytest.mark.parametrize("name", WEBHOOKS)
async def test_replicas_that_a_webhook_changes_are_ready_and_stay(name: str) -> None:
    cluster = await admitted(WEBHOOKS[name]())
    assert cluster.conditions() == SETTLED
    pods = [pod["metadata"]["uid"] for pod in cluster.pods()]
    writes = cluster.api.write_count
    for _ in range(2):
        await cluster.resync()
        cluster.start_operator()
        await cluster.resync()
    assert cluster.api.write_count == writes
    assert [pod["metadata"]["uid"] for pod in cluster.pods()] == pods
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("name", WEBHOOKS)
async def test_a_change_of_the_user_rolls_once(name: str) -> None:
    cluster = await admitted(WEBHOOKS[name]())
    cluster.apply("llama", spec_of(engine={"vllm": {"extraArgs": ["--seed=1"]}}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    container = cluster.deployment(DEPLOYMENT)["spec"]["template"]["spec"]["containers"][0]
    assert "--seed=1" in container["args"]
    writes = cluster.api.write_count
    await cluster.resync()
    assert cluster.api.write_count == writes


async def test_an_edit_of_a_changed_template_is_corrected() -> None:
    cluster = await admitted(rewriting_registry(MIRROR))
    body = cluster.deployment(DEPLOYMENT)
    admitted_image = body["spec"]["template"]["spec"]["containers"][0]["image"]
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "evil.example/vllm:1"
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.settle()
    template = cluster.deployment(DEPLOYMENT)["spec"]["template"]
    assert template["spec"]["containers"][0]["image"] == admitted_image
    assert cluster.conditions() == SETTLED


async def test_a_plan_that_was_approved_stays_approved() -> None:
    cluster = Cluster(MI300X)
    cluster.webhooks.append(rewriting_registry(MIRROR))
    cluster.apply("llama", spec_of(approval="Manual"))
    await cluster.settle()
    plan = cluster.status()["proposedPlan"]["hash"]
    cluster.apply("llama", spec_of(approval="Manual", approvedPlan=plan))
    await cluster.settle()
    cluster.apply("llama", spec_of(approval="Manual"))
    await cluster.settle()
    assert "proposedPlan" not in cluster.status()
    assert cluster.conditions() == SETTLED


async def test_a_failed_rollout_returns_to_what_served() -> None:
    cluster = await admitted(rewriting_registry(MIRROR))
    pods = [pod["metadata"]["uid"] for pod in cluster.pods()]
    cluster.behaviours["llama"] = without_image_for_a_seed
    cluster.clock.advance(3600)  # pods are distinguished by their creation time
    cluster.apply("llama", spec_of(engine={"vllm": {"extraArgs": ["--seed=1"]}}))
    await cluster.settle()
    await cluster.wait(3 * 3600)
    assert cluster.conditions()["Degraded"] == ("True", "RolledBack")
    assert cluster.conditions()["Available"][0] == "True"
    assert [pod["metadata"]["uid"] for pod in cluster.pods()] == pods
