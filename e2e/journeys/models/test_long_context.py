"""One model with a separate endpoint for long requests."""

from __future__ import annotations

from functools import partial

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, argument, condition, container, has
from e2e.models import inference

ABOVE, ALL = 8192, 131072
WORKLOAD: Json = {
    "maxModelLen": ALL,
    "concurrency": 112,
    "inputTokens": 1500,
    "outputTokens": 300,
    "latencyTargets": {"timePerOutputToken": "120ms"},
}
LONG: Json = {
    "above": ABOVE,
    "concurrency": 16,
    "inputTokens": 80000,
    "outputTokens": 500,
    "latencyTargets": {"timePerOutputToken": "400ms"},
}


def llama(long: Json | None = None, approval: str = "Automatic") -> Json:
    """A model whose replicas follow from its workload."""
    workload = WORKLOAD | ({"longContext": long} if long else {})
    manifest = inference("llama", "llama-3.1-8b", workload=workload, approval=approval)
    del manifest["spec"]["replicas"]
    return manifest


def accelerators(status: Json) -> list[str]:
    return [placement["accelerator"] for placement in status["placements"]]


def has_endpoints(user: User, service: str, pods: set[str]) -> bool:
    """Whether just these pods take requests behind a Service, as its EndpointSlices have it."""
    slices = user.admin.items("endpointslices", selector=f"kubernetes.io/service-name={service}")
    return pods == {
        endpoint["targetRef"]["name"]
        for endpoint_slice in slices
        for endpoint in endpoint_slice["endpoints"] or []
        if endpoint["conditions"]["ready"]
    }


def has_gone(user: User, kind: str) -> bool:
    """Whether the endpoint for long requests has no such children any more."""
    return not user.children(kind, "llama-long")


def test_short_and_long_endpoints_run_on_different_accelerators_and_have_a_label(
    fleet: UseFleet, user: User
) -> None:
    fleet("mixed")
    user.apply(llama(LONG))
    status = user.wait_ready("llama", timeout=180)
    long = user.wait_ready("llama-long", timeout=180)
    assert accelerators(status) == ["l40s"]
    assert accelerators(long) == ["mi300x"]
    assert [(one["context"], one["service"], one["ready"]) for one in status["endpoints"]] == [
        ("short", "llama", True),
        ("long", "llama-long", True),
    ]
    lengths = {}
    for context, name in (("short", "llama"), ("long", "llama-long")):
        selector = f"tonnage.dev/context={context}"
        (service,) = user.admin.items("services", selector=selector)
        assert service["metadata"]["name"] == name
        (deployment,) = user.admin.items("deployments", selector=selector)
        lengths[context] = argument(deployment, "--max-model-len")
        assert "--served-model-name=llama" in container(deployment)["args"]
        pods = {pod["metadata"]["name"] for pod in user.admin.items("pods", selector=selector)}
        assert pods == user.pods(name) != set()
        user.admin.until(f"endpoints of {name}", partial(has_endpoints, user, name, pods))
    assert lengths == {"short": str(ABOVE), "long": str(ALL)}
    user.await_quiet()
    user.assert_untouched()

    user.apply(llama())
    user.wait_ready("llama", timeout=180)
    user.admin.wait_gone("infd", "llama-long")
    for kind in ("services", "deployments", "pods"):
        what = f"the {kind} of the endpoint to go"
        user.admin.until(what, partial(has_gone, user, kind))
    why = "the endpoints to be listed no more"
    user.wait("llama", lambda status: "endpoints" not in status, timeout=90, why=why)


def test_each_endpoint_waits_for_its_own_approval(fleet: UseFleet, user: User) -> None:
    fleet("mixed")
    user.apply(llama(LONG, approval="Manual"))
    waits = has("Placed", "False", "AwaitingApproval")
    for name in ("llama", "llama-long"):
        user.admin.wait_for(
            "infd", name, lambda model: waits(model.get("status") or {}), timeout=90
        )
        user.await_quiet()  # until it knows all nodes, the operator may propose another plan
        plan = user.status(name)["proposedPlan"]["hash"]
        user.admin.patch("infd", name, {"spec": {"approvedPlan": plan}})
        user.forget(name)
    status = user.wait_ready("llama", timeout=180)
    assert condition(status, "Ready")["reason"] == "ReplicasReady"
    user.await_quiet()
    assert user.get("llama-long")["spec"]["approvedPlan"] == plan
    user.admin.delete("infd", "llama")
    user.admin.wait_gone("infd", "llama-long")
