"""A cluster without GPU nodes, and a node autoscaler that adds one for the pod that waits."""

from __future__ import annotations

from e2e.harness.admin import Admin
from e2e.harness.rest import Access, Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.pools import declared, discovered
from e2e.journeys.user import Predicate, User, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import READY_LABEL
from e2e.nodes.fleet import apply_nodes
from tests.support.production.autoscaler import Autoscaler, NodeGroup

TEAM = {"team": "chat"}
GROUP: Json = {"name": "chat", "accelerator": "mi300x", "labels": TEAM}


class KwokCloud:
    """A cloud whose kubelets KWOK plays."""

    def __init__(self, admin: Admin, access: Access) -> None:
        self._admin, self._access = admin, access

    def pods(self) -> list[Json]:
        """The pods of all namespaces."""
        return self._admin.items("pods", everywhere=True)

    def nodes(self) -> list[Json]:
        """All nodes."""
        return self._admin.items("nodes")

    def put_node(self, node: Json, *, ready: bool) -> None:
        """Add the node, or change it as its kubelet and its labeller do."""
        if not ready:
            node["metadata"]["labels"][READY_LABEL] = "false"
        apply_nodes(self._access, [node])


def test_a_cluster_at_zero_nodes_says_what_to_declare_and_waits_for_the_node_with_one_pod(
    control_plane: Stack, admin: Admin, fleet: UseFleet, declare: Declare, user: User
) -> None:
    fleet({"groups": [{"name": "cpu"}]})
    admin.until("no GPUs to be reported", lambda: not discovered(admin), timeout=90)
    autoscaler = Autoscaler(KwokCloud(admin, control_plane.access), NodeGroup(GROUP, 2))
    user.apply(inference("llama", "llama-3.1-405b-fp8"))
    status = user.wait("llama", has("Placed", "False", "NoMatchingPool"))
    message = condition(status, "Placed")["message"]
    for field in ("AcceleratorPool", "spec.nodeSelector", "spec.accelerator", "spec.maxNodes"):
        assert field in message
    declare(declared("chat", TEAM, maxNodes=2))
    user.wait("llama", says("set spec.accelerator of AcceleratorPool chat"))
    assert user.children("pods", "llama") == []

    declare(declared("chat", TEAM, accelerator="mi300x", maxNodes=2))
    (node,) = admin.until("a node to be added for the pod", autoscaler.scale_up, timeout=90)
    (waiting,) = user.children("pods", "llama")
    autoscaler.register(node)
    user.wait("llama", says(f"1 node that is starting ({node}: NotReady) and may grow by 1 node"))
    autoscaler.make_ready(node)
    status = user.wait("llama", says("is the device plugin running?"), timeout=90)
    assert has("Placed", "False", "InsufficientGPUs")(status)
    (still_waiting,) = user.children("pods", "llama")
    assert still_waiting["metadata"]["uid"] == waiting["metadata"]["uid"]
    assert autoscaler.scale_up() == [], "the node that is starting is for this pod"

    autoscaler.complete(node)
    user.wait_ready("llama", timeout=90)
    (pod,) = user.children("pods", "llama")
    assert pod["metadata"]["uid"] == waiting["metadata"]["uid"], "the pod that waited runs"
    assert pod["spec"]["nodeName"] == node
    assert autoscaler.scale_up() == []


def says(text: str) -> Predicate:
    """Whether condition Placed says so."""

    def holds(status: Json) -> bool:
        return any(
            one["type"] == "Placed" and text in one["message"]
            for one in status.get("conditions", [])
        )

    return holds
