"""A replica that its kubelet evicts: the status has the cause and the node."""

from __future__ import annotations

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.production.pod_faults import evicted
from tonnage import delays


def running(user: User) -> list[Json]:
    """The pods that run."""
    pods = user.children("pods", "llama")
    return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]


def test_an_eviction_is_reported_with_its_cause_and_its_node(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b", behaviour="never-ready"))
    (pod,) = user.admin.until("the pod to run", lambda: running(user))
    user.admin.patch("pods", pod["metadata"]["name"], {"status": evicted()}, subresource="status")
    status = user.wait(
        "llama", has("Ready", "False", "PodFailed"), timeout=2 * delays.POD_REPORTS + 30
    )
    node = pod["spec"]["nodeName"]
    assert condition(status, "Ready")["message"].startswith(
        f"1 pod failed: Evicted on node {node}: The node was low on resource: ephemeral-storage."
    )
