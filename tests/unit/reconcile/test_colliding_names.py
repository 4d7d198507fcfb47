"""Objects whose children would have one name, and foreign pods with the operator's labels: the
first object keeps its children, and labels alone make no pod a replica."""

import copy
import json

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, ready
from tests.support.in_memory.spreading import scarce, spread, two_pools
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.kinds import DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.workloads.names import deployment_name


def controller(cluster: Cluster, name: str) -> str:
    """Name of the Service's controller."""
    (owner,) = cluster.api.object(SERVICES, NAMESPACE, name)["metadata"]["ownerReferences"]
    return str(owner["name"])


def of_others(cluster: Cluster) -> list[Object]:
    """All Services, and the Deployments of `llama`."""
    deployments = cluster.api.objects(DEPLOYMENTS)
    labelled = [body for body in deployments if body["metadata"]["labels"][LABEL_OWNER] == "llama"]
    return cluster.api.objects(SERVICES) + labelled


async def test_an_object_named_as_a_placement_of_another_takes_nothing_from_it() -> None:
    cluster = await two_pools(4)
    before = copy.deepcopy(of_others(cluster))
    cluster.apply("llama-mi300x", spec_of())
    await cluster.settle()
    assert cluster.conditions("llama-mi300x")["Accepted"] == ("False", "NameConflict")
    assert of_others(cluster) == before


async def test_a_placement_named_as_another_object_takes_nothing_from_it() -> None:
    cluster = scarce()
    cluster.apply("llama-mi300x", spec_of(placement={"accelerators": ["h100-sxm-80gb"]}))
    await cluster.settle()
    cluster.apply("llama", spread(4))
    await cluster.settle()
    assert controller(cluster, "llama-mi300x") == "llama-mi300x"
    assert cluster.conditions("llama-mi300x")["Ready"] == ("True", "ReplicasReady")
    assert cluster.conditions("llama")["Ready"][0] == "False"
    assert "llama-mi300x" in cluster.message("Ready")


@pytest.mark.parametrize("letters", [40, 54, 55, 60, 63])
def test_a_name_that_was_cut_is_no_other_objects(letters: int) -> None:
    owner = "a" * letters
    names = {
        deployment_name(name, placement)
        for name in (owner, f"{owner[:-1]}b", f"{owner[:-2]}-a")
        for placement in ("mi300x", "h100-sxm-80gb", "h100-sxm-80gb-0a1b2")
    }
    assert len(names) == 9
    assert max(map(len, names)) <= 63


def forged_pod(namespace: str = NAMESPACE, **status: object) -> Object:
    """A foreign pod with the labels of a replica, which no Deployment owns."""
    labels = {LABEL_OWNER: "llama", LABEL_PLACEMENT: "mi300x", "pod-template-hash": "forged"}
    limits = {"amd.com/gpu": "1"}
    return {
        "metadata": {
            "name": "forged",
            "namespace": namespace,
            "labels": labels,
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {
            "nodeName": "mi300x-0",
            "containers": [{"name": "vllm", "resources": {"limits": limits}}],
        },
        "status": status,
    }


async def test_a_forged_pod_that_is_ready_makes_no_object_ready() -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = crashing()
    cluster.apply("llama", spec_of())
    await cluster.settle()
    cluster.api.put(PODS, forged_pod(**ready({})))
    cluster.watch()
    await cluster.settle()
    assert cluster.status()["readyReplicas"] == 0
    assert cluster.conditions()["Available"][0] == "False"


async def test_a_forged_pod_of_another_namespace_is_not_of_an_object_of_the_same_name() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    before = json.dumps(cluster.status())
    forged = forged_pod("elsewhere", **ready({}))
    cluster.api.put(PODS, forged)
    cluster.watch()
    await cluster.settle()
    assert json.dumps(cluster.status()) == before
    pod = read_gpu_pod(forged)
    assert pod is not None
    assert pod.owner == ("elsewhere", "llama")
