"""Reading a Node object: its capacity, or why it has none."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import MI300X, amd_node, nvidia_node, raw_node
from tonnage.fleet.devices.resources import read_count
from tonnage.fleet.model import Taint
from tonnage.fleet.nodes.node import UNNAMED, read_node


def taint(key: str, effect: str = "NoSchedule", value: str = "") -> dict[str, str]:
    return {"key": key, "value": value, "effect": effect}


@dataclass
class Unusable:
    want: str | None
    how: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    labels: dict[str, Any] = field(default_factory=dict)


UNUSABLE = {
    "a healthy node": Unusable(None),
    "kubectl cordon": Unusable("cordoned", {"cordoned": True}),
    "the kubelet says it is not ready": Unusable("NotReady", {"ready": "False"}),
    "the kubelet does not report": Unusable("NotReady", {"ready": "Unknown"}),
    "being deleted": Unusable(
        "being deleted", metadata={"deletionTimestamp": "2026-11-21T12:00:00Z"}
    ),
    "AMD's remediation tainted it": Unusable(
        "GPU unhealthy (amd-gpu-unhealthy)", {"taints": [taint("amd-gpu-unhealthy")]}
    ),
    "AMD's device config manager repartitions it": Unusable(
        "being repartitioned (amd-dcm)", {"taints": [taint("amd-dcm", "NoExecute", "up")]}
    ),
    "NVIDIA's MIG manager repartitions it": Unusable(
        "being repartitioned (nvidia.com/mig.config.state: pending)",
        labels={"nvidia.com/mig.config.state": "pending"},
    ),
    "NVIDIA's MIG manager failed": Unusable(
        "its MIG layout could not be made (nvidia.com/mig.config.state: failed)",
        labels={"nvidia.com/mig.config.state": "failed"},
    ),
    "AMD's device config manager has not applied a profile": Unusable(
        "being repartitioned (dcm.amd.com/gpu-config-profile=cpx-profile)",
        labels={"dcm.amd.com/gpu-config-profile": "cpx-profile"},
    ),
    "AMD's device config manager is done": Unusable(
        None,
        labels={
            "dcm.amd.com/gpu-config-profile": "cpx-profile",
            "dcm.amd.com/gpu-config-profile-state": "success",
        },
    ),
    "the MIG manager is done": Unusable(None, labels={"nvidia.com/mig.config.state": "success"}),
    "the disk is full": Unusable(
        "tainted disk-pressure", {"taints": [taint("node.kubernetes.io/disk-pressure")]}
    ),
    "unreachable": Unusable(
        "unreachable", {"taints": [taint("node.kubernetes.io/unreachable", "NoExecute")]}
    ),
    "a taint that only prefers other nodes": Unusable(
        None, {"taints": [taint("node.kubernetes.io/disk-pressure", "PreferNoSchedule")]}
    ),
    "the usual taint of GPU nodes": Unusable(None, {"taints": [taint("amd.com/gpu")]}),
    "Windows": Unusable("runs Windows", labels={"kubernetes.io/os": "windows"}),
    "a label that is a number": Unusable(
        "label nvidia.com/gpu.count is not a string", labels={"nvidia.com/gpu.count": 8}
    ),
}


@pytest.mark.parametrize("case", UNUSABLE.values(), ids=UNUSABLE.keys())
def test_why_a_node_is_no_capacity(case: Unusable) -> None:
    body = amd_node("n", MI300X | case.labels, **case.how)
    body["metadata"] |= case.metadata
    assert read_node(body).unusable == case.want


def test_a_node_without_conditions_counts_as_ready() -> None:
    body = amd_node("from-a-file")
    del body["status"]["conditions"]
    assert read_node(body).unusable is None


def test_only_gpu_resources_are_kept() -> None:
    node = read_node(
        raw_node(
            "n",
            {},
            {
                "amd.com/gpu": "8",
                "amd.com/cpx_nps4": "64",
                "nvidia.com/gpu": 2,
                "nvidia.com/gpu.shared": "4",
                "nvidia.com/mig-1g.10gb": "7",
                "amd.com/nic": "8",
                "nvidia.com/hostdev": "4",
                "rdma/hca": "8",
            },
        )
    )
    assert node.capacity == {
        "amd.com/gpu": 8,
        "amd.com/cpx_nps4": 64,
        "nvidia.com/gpu": 2,
        "nvidia.com/gpu.shared": 4,
        "nvidia.com/mig-1g.10gb": 7,
    }


def test_an_invalid_quantity_counts_as_zero_and_makes_the_node_unusable() -> None:
    node = read_node(nvidia_node("n") | {"status": {"capacity": {"nvidia.com/gpu": "many"}}})
    assert node.capacity == {"nvidia.com/gpu": 0}
    assert node.unusable == "nvidia.com/gpu is 'many', not a whole number of GPUs"


STARTING = {
    "healthy": (False, {}, {}),
    "the kubelet is not ready yet": (True, {"ready": "False"}, {}),
    "the kubelet does not report": (False, {"ready": "Unknown"}, {}),
    "Kubernetes' taint of a new node": (
        True,
        {"ready": "False", "taints": [taint("node.kubernetes.io/not-ready")]},
        {},
    ),
    "not initialised by its cloud": (
        True,
        {"taints": [taint("node.cloudprovider.kubernetes.io/uninitialized")]},
        {},
    ),
    "not registered with Karpenter": (True, {"taints": [taint("karpenter.sh/unregistered")]}, {}),
    "a startup taint": (
        True,
        {"taints": [taint("startup-taint.cluster-autoscaler.kubernetes.io/network")]},
        {},
    ),
    "also being removed": (
        False,
        {"taints": [taint("karpenter.sh/unregistered"), taint("ToBeDeletedByClusterAutoscaler")]},
        {},
    ),
    "also being deleted": (
        False,
        {"ready": "False"},
        {"deletionTimestamp": "2026-11-21T12:00:00Z"},
    ),
    "also cordoned": (False, {"ready": "False", "cordoned": True}, {}),
}


@pytest.mark.parametrize(("want", "how", "metadata"), STARTING.values(), ids=STARTING)
def test_a_node_is_starting_where_nothing_else_keeps_pods_away(
    want: bool, how: dict[str, Any], metadata: dict[str, Any]
) -> None:
    body = amd_node("n", **how)
    body["metadata"] |= metadata
    assert read_node(body).starting is want


def test_a_node_with_an_unreadable_quantity_is_not_starting() -> None:
    body = amd_node("n", ready="False")
    body["status"]["capacity"]["amd.com/gpu"] = "many"
    assert not read_node(body).starting


QUANTITIES = {
    "8": 8,
    8: 8,
    "8k": 8000,
    "2Ki": 2048,
    "1e1": 10,
    "0": 0,
    "-1": None,
    -1: None,
    "8.5": None,
    "500m": None,
    "": None,
    "eight": None,
    "9" * 40: None,
    "1e999999999": None,
    True: None,
    None: None,
}


@pytest.mark.parametrize(("value", "want"), QUANTITIES.items())
def test_quantities(value: object, want: int | None) -> None:
    assert read_count(value) == want


HOSTILE: dict[str, dict[str, Any]] = {
    "nothing at all": {},
    "everything is null": {"metadata": None, "spec": None, "status": None},
    "everything is text": {"metadata": "a", "spec": "b", "status": "c"},
    "everything is a list": {"metadata": [], "spec": [], "status": []},
    "labels are a list": {"metadata": {"name": "n", "labels": ["a"]}},
    "taints are numbers": {"metadata": {"name": "n"}, "spec": {"taints": [1, None, {"x": 1}]}},
    "conditions are text": {"metadata": {"name": "n"}, "status": {"conditions": "Ready"}},
    "capacity is a list": {"metadata": {"name": "n"}, "status": {"capacity": [1]}},
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_object_is_read_without_an_error(body: dict[str, Any]) -> None:
    assert read_node(body).capacity == {}


def test_a_node_without_a_name_is_never_capacity() -> None:
    body = nvidia_node("")
    assert read_node(body).name == UNNAMED
    assert read_node(body).unusable == "has no name"


def test_a_taint_without_a_value_is_read() -> None:
    body = nvidia_node("n", taints=[{"key": "nvidia.com/gpu", "effect": "NoSchedule"}])
    assert read_node(body).taints == (Taint("nvidia.com/gpu", "", "NoSchedule"),)
