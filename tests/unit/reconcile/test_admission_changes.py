"""Objects that admission webhooks change when the operator or a controller writes them."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.support.cluster import MI300X, Cluster, spec_of
from tests.support.production.webhooks import (
    Webhook,
    adding_toleration,
    rewriting_registry,
)
from tests.support.serving import SETTLED
from tonnage.kube.kinds import DEPLOYMENTS, PODS

DEPLOYMENT = "llama-mi300x"
MIRROR = "mirror.example.com"


def changing(change: Callable[[dict[str, Any]], None]) -> Callable[..., Webhook]:
    return lambda *kinds: Webhook(kinds, change=change)


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
    cluster = Cluster(MI300X)
    cluster.webhooks.append(webhook(*kinds))
    cluster.apply("llama", spec_of())
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    before = len(cluster.api.calls)
    await cluster.resync()
    assert [call for call in cluster.api.calls[before:] if call.verb == "apply"] == []
