"""Objects that admission webhooks change when the operator or a controller writes them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import MI300X, Cluster, spec_of
from tests.support.controllers import Behaviour, loading, ready
from tests.support.production.webhooks import (
    Webhook,
    adding_toleration,
    rewriting_registry,
)
from tests.support.serving import SETTLED, served
from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.kube.kinds import DEPLOYMENTS, PODS
from tonnage.kube.protocol import Object

DEPLOYMENT = "llama-mi300x"
MIRROR = "mirror.example.com"


def changing(change: Callable[[dict[str, Any]], None]) -> Callable[..., Webhook]:
    return lambda *kinds: Webhook(kinds, change=change)


async def served_with(webhook: Webhook) -> Cluster:
    """A cluster whose one object is ready behind the webhook."""
    cluster = Cluster(MI300X)
    cluster.webhooks.append(webhook)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions() == SETTLED, cluster.message("Ready")
    return cluster


def pod_names(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods()}


def template_of(cluster: Cluster) -> str:
    """The digest of the template that the operator rendered."""
    return str(cluster.deployment(DEPLOYMENT)["metadata"]["annotations"][ANNOTATION_TEMPLATE])


def hanging_with(argument: str) -> Behaviour:
    """Pods whose server has the argument never become ready."""

    def behave(pod: Object) -> Object:
        return loading(pod) if argument in pod["spec"]["containers"][0]["args"] else ready(pod)

    return behave


def add_sidecar(spec: dict[str, Any]) -> None:
    if all(one["name"] != "mesh" for one in spec["containers"]):
        spec["containers"].insert(0, {"name": "mesh", "image": "mesh:1"})


def add_variable(spec: dict[str, Any]) -> None:
    variable = {"name": "MESH", "value": "1"}
    environment = spec["containers"][0]["env"]
    if variable not in environment:
        environment.insert(0, variable)


def change_variable(spec: dict[str, Any]) -> None:
    spec["containers"][0]["env"][0] = {
        "name": spec["containers"][0]["env"][0]["name"],
        "value": "x",
    }


def drop_security_context(spec: dict[str, Any]) -> None:
    spec["containers"][0].pop("securityContext", None)


def add_argument(spec: dict[str, Any]) -> None:
    if "--x" not in spec["containers"][0]["args"]:
        spec["containers"][0]["args"].append("--x")


WEBHOOKS: dict[str, Callable[..., Webhook]] = {
    "another registry": lambda *kinds: rewriting_registry(MIRROR, *kinds),
    "a toleration": lambda *kinds: adding_toleration("spot", *kinds),
    "a sidecar": changing(add_sidecar),
    "a variable": changing(add_variable),
    "another value of a variable": changing(change_variable),
    "no security context": changing(drop_security_context),
    "an argument": changing(add_argument),
}


@pytest.mark.parametrize("kinds", [(DEPLOYMENTS,), (PODS,), (DEPLOYMENTS, PODS)])
@pytest.mark.parametrize("webhook", WEBHOOKS.values(), ids=WEBHOOKS)
async def test_replicas_that_a_webhook_changes_are_ready_and_written_once(
    webhook: Callable[..., Webhook], kinds: Any
) -> None:
    cluster = await served_with(webhook(*kinds))
    before = len(cluster.api.calls)
    await cluster.resync()
    assert [call for call in cluster.api.calls[before:] if call.verb == "apply"] == []


@pytest.mark.parametrize("kinds", [(DEPLOYMENTS,), (PODS,), (DEPLOYMENTS, PODS)])
async def test_the_status_names_the_image_that_runs(kinds: Any) -> None:
    plain = await served(MI300X)
    (requested,) = plain.status()["placements"]
    assert "requestedImage" not in requested
    cluster = await served_with(rewriting_registry(MIRROR, *kinds))
    (placement,) = cluster.status()["placements"]
    assert placement["image"] == f"{MIRROR}/{requested['image']}"
    assert placement["requestedImage"] == requested["image"]
    assert cluster.status()["lastReadyPlan"]["placement"] == placement


async def test_another_client_that_changes_what_a_webhook_changed_is_overruled() -> None:
    cluster = await served_with(rewriting_registry(MIRROR, DEPLOYMENTS))
    body = cluster.deployment(DEPLOYMENT)
    body["spec"]["template"]["spec"]["containers"][0]["image"] = "other:1"
    cluster.api.put(DEPLOYMENTS, body)
    await cluster.settle()
    (container,) = cluster.deployment(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    assert container["image"].startswith(f"{MIRROR}/vllm/")
    assert cluster.conditions() == SETTLED


@pytest.mark.parametrize("webhook", WEBHOOKS.values(), ids=WEBHOOKS)
async def test_a_webhook_that_comes_or_goes_replaces_no_pod(
    webhook: Callable[..., Webhook],
) -> None:
    cluster = await served(MI300X)
    before = pod_names(cluster)
    cluster.webhooks.append(webhook(DEPLOYMENTS, PODS))
    await cluster.resync()
    assert pod_names(cluster) == before
    cluster = await served_with(webhook(DEPLOYMENTS, PODS))
    before = pod_names(cluster)
    cluster.webhooks.clear()
    await cluster.resync()
    assert pod_names(cluster) == before
    assert cluster.conditions() == SETTLED


async def test_a_changed_spec_rolls_and_is_ready_behind_a_webhook() -> None:
    cluster = await served_with(rewriting_registry(MIRROR))
    before = pod_names(cluster)
    cluster.apply("llama", spec_of(workload={"maxModelLen": 4096}))
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    assert pod_names(cluster).isdisjoint(before)


async def test_a_plan_that_fails_is_rolled_back_behind_a_webhook() -> None:
    cluster = await served_with(rewriting_registry(MIRROR))
    served_by = cluster.status()["lastReadyPlan"]["template"]
    cluster.behaviours["llama"] = hanging_with("--broken")
    cluster.apply(
        "llama",
        spec_of(rollout={"progressDeadline": "1m"}, engine={"vllm": {"extraArgs": ["--broken"]}}),
    )
    await cluster.settle()
    await cluster.wait(120)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack"), cluster.message("Ready")
    assert template_of(cluster) == served_by
    (placement,) = cluster.status()["placements"]
    assert placement["readyReplicas"] == 1


async def test_what_runs_behind_a_webhook_needs_no_new_approval() -> None:
    cluster = await served_with(rewriting_registry(MIRROR))
    before = pod_names(cluster)
    cluster.apply("llama", spec_of(approval="Manual"))
    await cluster.settle()
    assert "proposedPlan" not in cluster.status()
    assert cluster.conditions() == SETTLED
    assert pod_names(cluster) == before
