"""Pods that have a node and do not come up: the status has the cause and the node."""

from __future__ import annotations

from datetime import UTC, datetime

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.production.pod_faults import NotCreated, evicted
from tonnage import delays
from tonnage.reconcile.observation.findings import format_time

WITHIN = 2 * delays.POD_REPORTS + 120
VOLUME = 'MountVolume.SetUp failed for volume "weights": rpc error: volume is attached elsewhere'


def await_running(user: User, name: str) -> Json:
    """The pod of the object, once its container runs."""

    def running() -> list[Json]:
        pods = user.children("pods", name)
        return [pod for pod in pods if pod.get("status", {}).get("phase") == "Running"]

    (pod,) = user.admin.until(f"the pod of {name} to run", running, timeout=90)
    return pod


def failed_mount(pod: Json) -> Json:
    """The Event as a kubelet writes it."""
    metadata, at = pod["metadata"], format_time(datetime.now(UTC))
    regarding = {key: metadata[key] for key in ("name", "namespace", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.mount", "namespace": metadata["namespace"]},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **regarding},
        "type": "Warning",
        "reason": "FailedMount",
        "message": VOLUME,
        "source": {"component": "kubelet", "host": pod["spec"]["nodeName"]},
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def test_the_cause_and_the_node_are_reported(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    for name in ("evicted", "stuck"):
        user.apply(inference(name, "llama-3.1-8b", behaviour="never-ready"))
    ended, stuck = (await_running(user, name) for name in ("evicted", "stuck"))
    waiting = NotCreated("ContainerCreating")(stuck)
    for pod, status in ((ended, evicted()), (stuck, waiting)):
        user.admin.patch("pods", pod["metadata"]["name"], {"status": status}, subresource="status")
    user.admin.apply(failed_mount(stuck))

    status = user.wait("evicted", has("Ready", "False", "PodFailed"), timeout=WITHIN)
    node = ended["spec"]["nodeName"]
    assert condition(status, "Ready")["message"].startswith(
        f"1 pod failed: Evicted on node {node}: The node was low on resource: ephemeral-storage."
    )
    status = user.wait("stuck", has("Ready", "False", "ContainerNotCreated"), timeout=WITHIN)
    assert (
        f"FailedMount on node {stuck['spec']['nodeName']}: {VOLUME}"
        in (condition(status, "Ready")["message"])
    )
