"""The nodes of a pool keep the weights of models; each node downloads them once.

KWOK plays the containers, the Job controller is the real one. The programs that download and delete
run as processes in tests/integration/hub/test_node_disk.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import ApiError, Json
from e2e.journeys.conftest import Declare, UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.pools import H100, declared
from e2e.journeys.user import Predicate, User, condition, container, has
from e2e.models import inference
from tests.support.foreign.hub_server import HubFile, HubServer
from tests.support.foreign.tiny_model import CONFIG, SHARDS

REPO = "acme/kept"
FILES = {"config.json": CONFIG, **SHARDS}


def kept(**spec: Any) -> Json:
    model = {"source": {"huggingFace": {"repo": REPO}}, "cache": {"nodeDisk": {}}}
    return inference("kept", model=model, workload={"maxModelLen": 2048}, **spec)


def pool(**node_disk: Any) -> Json:
    return declared("kept", H100, weights={"nodeDisk": node_disk} if node_disk else {})


def volume_of(user: User) -> Json:
    (deployment,) = user.children("deployments", "kept")
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    (volume,) = (each for each in volumes if each["name"] == "model")
    source: Json = volume["hostPath"]
    return source


def verdicts(status: Json) -> dict[str, tuple[str, str]]:
    candidates = status.get("candidates") or []
    return {each["pool"]: (each["reason"], each["message"]) for each in candidates}


def is_rejected(reason: str) -> Predicate:
    """A predicate on a status: no pool takes the replicas, the declared one for this reason."""

    def holds(status: Json) -> bool:
        why, _ = verdicts(status).get("kept", ("", ""))
        return bool(has("Placed", "False")(status)) and why == reason

    return holds


def test_pods_bring_the_weights_to_the_disk_of_their_node(
    fleet: UseFleet,
    declare: Declare,
    user: User,
    hub: HubServer,
    operator: OperatorProcess,
    plugin: Plugin,
) -> None:
    fleet("tiny")
    declare(pool())
    first = hub.add_repo(REPO, FILES)
    user.apply(kept(replicas=2))
    user.wait("kept", is_rejected("NoNodeDisk"), timeout=90)
    assert "keep no weights" in plugin.run("explain", "kept")

    declare(pool(capacity="1Ki"))
    status = user.wait("kept", has("Placed", "False", "InsufficientResources"), timeout=180)
    assert "raise spec.weights.nodeDisk.capacity" in verdicts(status)["kept"][1]

    declare(pool(capacity="2Ti"))
    user.wait_ready("kept", timeout=180)
    directory = f"/var/lib/tonnage/weights/{user.namespace}"
    assert volume_of(user) == {"path": directory, "type": "DirectoryOrCreate"}
    assert user.children("jobs", "kept") == []
    pods = user.children("pods", "kept")
    assert len(pods) == 2
    for pod in pods:
        (keeper,) = pod["spec"]["initContainers"]
        assert (keeper["name"], keeper["restartPolicy"]) == ("weights", "Always")
        (status,) = pod["status"]["initContainerStatuses"]
        assert "running" in status["state"]

    newer = hub.add_repo(REPO, {**FILES, "LICENSE": HubFile.of("another one")})
    operator.stop()
    operator.start()
    status = user.wait("kept", lambda status: status.get("availableUpdate"), timeout=180)
    assert status["availableUpdate"]["message"] == f"commit of main from {first} to {newer}"
    declare(pool(capacity="4Ti"))
    user.await_quiet()
    before = {pod["metadata"]["uid"] for pod in pods}
    assert {pod["metadata"]["uid"] for pod in user.children("pods", "kept")} == before
    user.forget("kept")
    plugin.run("upgrade", "kept")
    user.wait_ready("kept", timeout=180)
    (deployment,) = user.children("deployments", "kept")
    assert container(deployment)["args"][0] == f"/models/acme--kept/{newer}"


def test_a_namespace_that_forbids_host_paths_is_named(
    fleet: UseFleet, declare: Declare, user: User, hub: HubServer, admin: Admin
) -> None:
    fleet("tiny")
    declare(pool(capacity="2Ti"))
    hub.add_repo(REPO, FILES)
    label = "pod-security.kubernetes.io/enforce"
    admin.patch("namespaces", user.namespace, {"metadata": {"labels": {label: "baseline"}}})
    user.apply(kept())
    status = user.wait("kept", has("Placed", "False", "PodSecurityViolated"))
    assert "forbids hostPath volumes" in condition(status, "Placed")["message"]
    assert user.children("deployments", "kept") == []
    admin.patch("namespaces", user.namespace, {"metadata": {"labels": {label: None}}})
    user.wait_ready("kept", timeout=180)


def test_nodes_have_the_weights_before_a_replica_moves_to_them(
    fleet: UseFleet, declare: Declare, user: User, hub: HubServer, admin: Admin
) -> None:
    nodes: Json = {"name": "h100", "accelerator": "h100-sxm-80gb", "gpusPerNode": 8}
    fleet({"groups": [{**nodes, "count": 2}]})
    declare(pool(capacity="2Ti"))
    hub.add_repo(REPO, FILES)
    model = kept()
    model["spec"]["model"]["cache"] = {"nodeDisk": {"prefetch": {"nodes": 2}}}
    user.apply(model)
    user.wait_ready("kept", timeout=180)
    (pod,) = user.children("pods", "kept")
    status = user.wait("kept", prefetched(nodes=1, ready=1), timeout=180)
    assert "1 node without replicas" in status["prefetch"]["message"]
    assert [node_of(job) for job in user.children("jobs", "kept")] != [pod["spec"]["nodeName"]]

    fleet({"groups": [{**nodes, "count": 3}]})
    status = user.wait("kept", prefetched(nodes=2, ready=2), timeout=300)
    assert "message" not in status["prefetch"]
    (first, second) = user.children("jobs", "kept")
    assert {node_of(first), node_of(second), pod["spec"]["nodeName"]} == {
        f"h100-{number}" for number in range(3)
    }
    ran = admin.items("pods", selector=f"job-name={first['metadata']['name']}")
    assert [each["spec"]["nodeName"] for each in ran] == [node_of(first)]
    user.await_quiet()
    user.assert_untouched()

    admin.delete("nodes", pod["spec"]["nodeName"])
    others = [node_of(first), node_of(second)]
    user.wait("kept", lambda _: running_on(user) in ([one] for one in others), timeout=300)
    user.wait_ready("kept", timeout=180)
    (moved,) = user.children("pods", "kept")
    user.wait("kept", prefetched(nodes=1, ready=1), timeout=300)
    selector = "tonnage.dev/inferencedeployment=kept"
    (left,) = admin.wait_items("jobs", lambda jobs: len(jobs) == 1, selector=selector)
    assert node_of(left) != moved["spec"]["nodeName"]

    user.apply(kept())
    user.wait("kept", lambda status: "prefetch" not in status, timeout=180)
    user.wait("kept", lambda status: not user.children("jobs", "kept"), timeout=180)
    assert [each["metadata"]["uid"] for each in user.children("pods", "kept")] == [
        moved["metadata"]["uid"]
    ]


def prefetched(*, nodes: int, ready: int) -> Predicate:
    def holds(status: Json) -> bool:
        reported = status.get("prefetch", {})
        return (reported.get("nodes"), reported.get("readyNodes")) == (nodes, ready)

    return holds


def running_on(user: User) -> list[str]:
    return [pod["spec"].get("nodeName", "") for pod in user.children("pods", "kept")]


def node_of(job: Json) -> str:
    node: str = job["metadata"]["annotations"]["tonnage.dev/prefetch-node"]
    return node


@pytest.mark.parametrize(
    ("node_disk", "want"),
    [
        ({"path": "/mnt/nvme"}, "capacity"),
        ({"capacity": "much"}, "capacity"),
        ({"capacity": "2Ti", "path": "mnt"}, "path"),
        ({"capacity": "2Ti", "path": "/mnt/../etc"}, "path"),
        ({"capacity": "2Ti", "path": "/mnt/"}, "path"),
        ({"capacity": "2Ti", "ttlSecondsAfterLastUse": 0}, "ttlSecondsAfterLastUse"),
    ],
)
def test_a_wrong_disk_is_refused_with_the_field(
    admin: Admin, operator: OperatorProcess, node_disk: Json, want: str
) -> None:
    with pytest.raises(ApiError, match=f"spec.weights.nodeDisk.{want}"):
        admin.apply(pool(**node_disk))
