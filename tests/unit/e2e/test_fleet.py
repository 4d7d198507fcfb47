"""From a fleet's description to Node objects: labels, resources and refusals."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.harness.failure import HarnessError
from e2e.nodes.fleet import load_fleet, render_nodes, shipped_fleets
from e2e.nodes.slices import render_device_classes, render_slices


def one(**group: Any) -> dict[str, Any]:
    nodes = render_nodes({"groups": [group]})
    assert len(nodes) == 1
    return nodes[0]


def labels(**group: Any) -> dict[str, str]:
    return dict(one(**group)["metadata"]["labels"])


def devices(**group: Any) -> dict[str, str]:
    allocatable = one(**group)["status"]["allocatable"]
    return {name: number for name, number in allocatable.items() if "/" in name}


def test_the_mixed_fleet_has_its_documented_nodes() -> None:
    groups: dict[str, int] = {}
    for node in render_nodes(load_fleet("mixed")):
        group = node["metadata"]["annotations"]["e2e.tonnage.dev/group"]
        groups[group] = groups.get(group, 0) + 1
    assert groups == {"mi300x": 4, "h100": 4, "h200": 2, "mi355x": 1, "l40s": 2}


@pytest.mark.parametrize("name", shipped_fleets())
def test_each_shipped_fleet_renders_nodes_of_distinct_names(name: str) -> None:
    names = [node["metadata"]["name"] for node in render_nodes(load_fleet(name))]
    assert names
    assert len(names) == len(set(names))


def test_the_required_fleets_exist() -> None:
    assert {"mixed", "amd-only", "nvidia-only", "tiny"} <= set(shipped_fleets())


@pytest.mark.parametrize(
    ("accelerator", "device_id", "vram"),
    [
        ("mi210", "740f", "64G"),
        ("mi250x", "7408", "64G"),
        ("mi300x", "74a1", "192G"),
        ("mi308x", "74a2", "192G"),
        ("mi325x", "74a5", "256G"),
        ("mi350x", "75a0", "288G"),
        ("mi355x", "75a3", "288G"),
    ],
)
def test_an_amd_node_has_the_labels_of_rocms_node_labeller(
    accelerator: str, device_id: str, vram: str
) -> None:
    node_labels = labels(accelerator=accelerator)
    assert node_labels["amd.com/gpu.device-id"] == device_id
    assert node_labels["amd.com/gpu.vram"] == vram
    assert node_labels["beta.amd.com/gpu.device-id"] == device_id
    assert node_labels[f"beta.amd.com/gpu.device-id.{device_id}"] == "8"
    assert devices(accelerator=accelerator) == {"amd.com/gpu": "8"}


@pytest.mark.parametrize(
    ("accelerator", "product", "memory", "family"),
    [
        ("a100-sxm-40gb", "NVIDIA-A100-SXM4-40GB", "40960", "ampere"),
        ("a100-sxm-80gb", "NVIDIA-A100-SXM4-80GB", "81920", "ampere"),
        ("h100-sxm-80gb", "NVIDIA-H100-80GB-HBM3", "81559", "hopper"),
        ("h100-pcie-80gb", "NVIDIA-H100-PCIe", "81559", "hopper"),
        ("h200-sxm-141gb", "NVIDIA-H200", "143771", "hopper"),
        ("b200-180gb", "NVIDIA-B200", "183359", "blackwell"),
        ("b300-288gb", "NVIDIA-B300-SXM6-AC", "275040", "blackwell"),
        ("gb200-192gb", "NVIDIA-GB200", "189471", "blackwell"),
        ("l4", "NVIDIA-L4", "23034", "ada-lovelace"),
        ("l40s", "NVIDIA-L40S", "46068", "ada-lovelace"),
    ],
)
def test_an_nvidia_node_has_the_labels_of_gpu_feature_discovery(
    accelerator: str, product: str, memory: str, family: str
) -> None:
    node_labels = labels(accelerator=accelerator, gpusPerNode=8)
    assert node_labels["nvidia.com/gpu.product"] == product
    assert node_labels["nvidia.com/gpu.memory"] == memory
    assert node_labels["nvidia.com/gpu.family"] == family
    assert node_labels["nvidia.com/gpu.count"] == "8"
    assert node_labels["nvidia.com/gpu.sharing-strategy"] == "none"
    assert node_labels["nvidia.com/cuda.driver-version.major"] == "580"
    assert node_labels["nvidia.com/cuda.runtime-version.full"] == "13.0"
    assert devices(accelerator=accelerator, gpusPerNode=8) == {"nvidia.com/gpu": "8"}


def test_a_gb200_node_is_arm() -> None:
    node = one(accelerator="gb200-192gb")
    assert node["metadata"]["labels"]["kubernetes.io/arch"] == "arm64"
    assert node["status"]["nodeInfo"]["architecture"] == "arm64"
    assert node["status"]["allocatable"]["nvidia.com/gpu"] == "4"


def test_a_partitioned_node_offers_eighths() -> None:
    group = {"accelerator": "mi300x", "partition": {"compute": "cpx", "memory": "nps4"}}
    assert devices(**group) == {"amd.com/gpu": "64"}
    node_labels = labels(**group)
    assert node_labels["amd.com/gpu.compute-memory-partition"] == "cpx_nps4"
    assert (node_labels["amd.com/gpu.vram"], node_labels["amd.com/gpu.cu-count"]) == ("24G", "38")
    group["partition"] = {"compute": "cpx", "memory": "nps4", "strategy": "mixed"}
    assert devices(**group) == {"amd.com/cpx_nps4": "64"}


def test_mig_changes_the_product_or_the_resource() -> None:
    single = {"accelerator": "a100-sxm-80gb", "mig": {"strategy": "single", "profile": "1g.10gb"}}
    assert devices(**single) == {"nvidia.com/gpu": "56"}
    assert labels(**single)["nvidia.com/gpu.product"] == "NVIDIA-A100-SXM4-80GB-MIG-1g.10gb"
    assert labels(**single)["nvidia.com/gpu.memory"] == "9728"
    mixed = {"accelerator": "h100-sxm-80gb", "mig": {"strategy": "mixed", "profile": "3g.40gb"}}
    assert devices(**mixed) == {"nvidia.com/mig-3g.40gb": "16", "nvidia.com/gpu": "0"}
    assert labels(**mixed)["nvidia.com/mig.strategy"] == "mixed"


def test_shared_gpus_are_counted_by_replica_and_labelled() -> None:
    sharing: dict[str, Any] = {"strategy": "time-slicing", "replicas": 4}
    assert devices(accelerator="l4", sharing=sharing) == {"nvidia.com/gpu": "32"}
    node_labels = labels(accelerator="l4", sharing=sharing)
    assert node_labels["nvidia.com/gpu.product"] == "NVIDIA-L4-SHARED"
    assert node_labels["nvidia.com/gpu.replicas"] == "4"
    assert node_labels["nvidia.com/gpu.sharing-strategy"] == "time-slicing"
    renamed = devices(accelerator="l4", sharing={**sharing, "renameByDefault": True})
    assert renamed == {"nvidia.com/gpu.shared": "32"}


def test_a_labeller_can_be_missing_or_incomplete() -> None:
    bare = labels(accelerator="h100-sxm-80gb", labeller="none")
    assert not [key for key in bare if "nvidia" in key]
    weak = labels(accelerator="mi300x", labeller="nfd")
    assert weak["feature.node.kubernetes.io/amd-gpu-mi300x"] == "true"
    assert not [key for key in weak if key.startswith("amd.com/")]


def test_a_node_without_accelerator_has_a_processor_and_memory_only() -> None:
    node = one(name="cpu", cpu=16, memory="64Gi")
    assert node["status"]["capacity"]["cpu"] == "16"
    assert node["status"]["allocatable"]["memory"] == f"{64 * 1024 * 97 // 100}Mi"
    assert devices(name="cpu") == {}


def test_fields_of_a_group_are_set_on_its_nodes() -> None:
    taint = {"key": "amd.com/gpu", "value": "present", "effect": "NoSchedule"}
    node = one(
        name="odd",
        accelerator="mi300x",
        taints=[taint],
        labels={"team": "chat"},
        unschedulable=True,
        ready=False,
    )
    assert node["spec"] == {"unschedulable": True, "taints": [taint]}
    assert node["metadata"]["labels"]["team"] == "chat"
    assert node["metadata"]["labels"]["e2e.tonnage.dev/ready"] == "false"
    assert node["metadata"]["annotations"]["kwok.x-k8s.io/node"] == "fake"


def test_a_node_can_be_silent() -> None:
    assert labels(name="cpu", ready="unknown")["e2e.tonnage.dev/ready"] == "unknown"


def test_only_lost_nodes_have_a_label_of_the_harness() -> None:
    assert not [key for key in labels(accelerator="mi300x") if "tonnage" in key]


@pytest.mark.parametrize(
    ("group", "words"),
    [
        ({"accelerator": "h9000"}, "'h9000' is not known; known: mi100, .*l40s"),
        ({"accelerator": "mi300x", "gpuPerNode": 8}, "gpuPerNode is not known; known: accelerator"),
        ({"accelerator": "mi300x", "count": "two"}, "count is 'two', expected a number"),
        ({"accelerator": "mi300x", "count": True}, "count is True, expected a number"),
        ({"accelerator": "mi300x", "labeller": "gfd"}, "labeller is 'gfd', expected one of amd"),
        ({"accelerator": "mi300x", "mig": {}}, "mig needs an accelerator of nvidia, not 'mi300x'"),
        (
            {"accelerator": "l4", "sharing": {"strategy": "magic", "replicas": 2}},
            "strategy is 'magic', expected time-slicing or mps",
        ),
        ({"accelerator": "l4", "sharing": {"strategy": "mps"}}, "replicas is None"),
        (
            {"accelerator": "h100-sxm-80gb", "mig": {"strategy": "single", "profile": "half"}},
            "profile is 'half', expected as 3g.40gb",
        ),
        ({"name": "Big_Node"}, "must be a DNS label"),
        ({"name": "cpu", "memory": "much"}, "memory is 'much', expected GiB"),
        ({"accelerator": "mi300x", "taints": ["gpu"]}, r"taints\[0\] is 'gpu'"),
        ({"accelerator": "mi300x", "labels": {"a": 1}}, "labels.a is 1, expected text"),
        ({"accelerator": "mi300x", "ready": "no"}, "ready is 'no', expected true or false"),
    ],
)
def test_an_error_in_a_group_is_named(group: dict[str, Any], words: str) -> None:
    with pytest.raises(HarnessError, match=words):
        render_nodes({"groups": [group]})


@pytest.mark.parametrize("description", [None, [], {}, {"groups": []}, "mixed"])
def test_a_file_that_is_not_a_fleet_is_refused(description: Any) -> None:
    with pytest.raises(HarnessError, match="a fleet needs `groups`"):
        render_nodes(description)


def test_two_groups_of_one_name_are_refused() -> None:
    with pytest.raises(HarnessError, match="'cpu' is used twice"):
        render_nodes({"groups": [{"name": "cpu"}, {"name": "cpu"}]})


def test_an_unknown_fleet_lists_the_shipped_ones() -> None:
    with pytest.raises(HarnessError, match="amd-only"):
        load_fleet("no-such-fleet")


@pytest.mark.parametrize(
    ("accelerator", "driver", "product"),
    [
        ("mi300x", "gpu.amd.com", "AMD_Instinct_MI300X_OAM"),
        ("h100-sxm-80gb", "gpu.nvidia.com", "NVIDIA H100 80GB HBM3"),
    ],
)
@pytest.mark.parametrize("release", ["current", "previous"])
def test_a_dra_driver_publishes_gpus_in_a_resource_slice_and_none_on_the_node(
    accelerator: str, driver: str, product: str, release: str
) -> None:
    group = {"name": "gpus", "accelerator": accelerator, "gpusPerNode": 4, "draDriver": release}
    assert devices(**group) == {}
    assert not [key for key in labels(**group) if "gpu" in key]
    (body,) = render_slices({"groups": [group]})
    assert (body["spec"]["driver"], body["spec"]["nodeName"]) == (driver, "gpus-0")
    attributes = [device["attributes"] for device in body["spec"]["devices"]]
    assert [each["productName"]["string"] for each in attributes] == [product] * 4
    is_previous = "pcieBusID" in attributes[0] or "pciAddr" in attributes[0]
    assert is_previous == (release == "previous")
    (device_class,) = render_device_classes([body])
    assert device_class["metadata"]["name"] == driver


def test_a_labeller_may_run_next_to_a_dra_driver() -> None:
    with_labels = labels(accelerator="mi300x", draDriver="current", labeller="amd")
    assert with_labels["amd.com/gpu.device-id"] == "74a1"


@pytest.mark.parametrize(
    ("group", "message"),
    [
        ({"accelerator": "mi300x", "draDriver": "next"}, "expected current or previous"),
        ({"draDriver": "current"}, "needs an accelerator"),
        (
            {"accelerator": "mi300x", "draDriver": "current", "partition": {"compute": "cpx"}},
            "partition needs a device plugin",
        ),
    ],
)
def test_a_dra_driver_that_cannot_be_is_refused(group: dict[str, Any], message: str) -> None:
    with pytest.raises(HarnessError, match=message):
        render_nodes({"groups": [group]})
