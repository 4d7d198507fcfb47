"""Which devices of ResourceSlices count as GPUs, and the reason of each that does not."""

import pytest

from tests.support.fleets.dra_objects import (
    AMD,
    AMD_RESOURCE,
    H100,
    MI300X,
    NVIDIA,
    NVIDIA_RESOURCE,
    amd_device,
    claim,
    device_class,
    dra_node,
    gpu_slice,
    nvidia_device,
    raw_slice,
)
from tests.support.fleets.gpu_nodes import L40S as L40S_LABELS
from tests.support.fleets.gpu_nodes import MI300X as MI300X_LABELS
from tests.support.fleets.gpu_nodes import gpu_pod_body, nvidia_labels, nvidia_node
from tonnage.api.names import LABEL_PLACEMENT as PLACEMENT
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.dra.allocations import Allocations
from tonnage.fleet.dra.published import DevicePool, publish
from tonnage.fleet.dra.read import read_claim, read_device_class, read_slice
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod


def pools_of(*objects, excluding=None, reservations=()):
    read = {
        "Node": ("nodes", read_node),
        "Pod": ("pods", read_gpu_pod),
        "ResourceSlice": ("slices", read_slice),
        "ResourceClaim": ("claims", read_claim),
        "DeviceClass": ("device_classes", read_device_class),
    }
    parts = {}
    for body in objects:
        field, parse = read[body.get("kind", "Pod")]
        part = parse(body)
        parts[field] = (*parts.get(field, ()), *([] if part is None else [part]))
    snapshot = FleetSnapshot(**({"nodes": ()} | parts), reservations=reservations)
    return build_pools(snapshot, load_catalog(), excluding)


def with_type(kind, device=None):
    device = device or nvidia_device(H100, 0)
    return device | {"attributes": device["attributes"] | {"type": {"string": kind}}}


def with_taint(effect, index=0):
    return nvidia_device(H100, index) | {"taints": [{"key": "gpu-unhealthy", "effect": effect}]}


def test_a_node_with_slices_has_gpus_that_its_status_does_not_have():
    (pool,) = pools_of(dra_node("n"), gpu_slice("n", gpus=8))
    assert (pool.name, pool.resource) == ("nvidia-h100-sxm-80gb-dra", NVIDIA_RESOURCE)
    assert (pool.total, pool.allocatable, pool.free, pool.largest_free_block) == (8, 8, 8, 8)


def test_a_node_of_the_device_plugin_is_in_a_pool_of_its_own():
    plugin, dra = sorted(
        pools_of(nvidia_node("a"), dra_node("b"), gpu_slice("b")), key=lambda pool: len(pool.name)
    )
    assert (plugin.name, dra.name) == ("nvidia-h100-sxm-80gb", "nvidia-h100-sxm-80gb-dra")
    assert (plugin.free, dra.free) == (8, 8)


def test_gpus_that_both_offer_are_counted_once():
    (pool,) = pools_of(nvidia_node("n"), gpu_slice("n"))
    assert (pool.resource, pool.total, pool.free) == (NVIDIA_RESOURCE, 8, 8)
    assert pool.notes == (
        "nvidia.com/gpu (8) of a device plugin is left out: the ResourceSlices count",
    )


def test_only_the_newest_generation_counts():
    old = gpu_slice("n", gpus=8, name="old", generation=3)
    new = gpu_slice("n", gpus=6, name="new", generation=4)
    (pool,) = pools_of(dra_node("n"), old, new)
    assert (pool.total, pool.free) == (6, 6)
    assert pool.notes == (
        "ResourceSlices of gpu.nvidia.com, pool n of generation 3 do not count: the newest is 4",
    )


def test_slices_of_a_generation_that_is_being_written_are_no_capacity():
    (pool,) = pools_of(dra_node("n"), gpu_slice("n", gpus=4, count=2))
    assert (pool.accelerator.id, pool.total, pool.free) == ("h100-sxm-80gb", 4, 0)
    assert pool.nodes[0].unusable == (
        "ResourceSlices of gpu.nvidia.com, pool n are incomplete: 1 of 2 of generation 1 exist"
    )


def test_two_slices_of_one_generation_are_added():
    devices = [nvidia_device(H100, index) for index in range(8)]
    (pool,) = pools_of(
        dra_node("n"),
        raw_slice("n", devices[:4], name="a", count=2),
        raw_slice("n", devices[4:], name="b", count=2),
    )
    assert pool.free == 8


def test_slices_that_disagree_on_their_number_are_no_capacity():
    devices = [nvidia_device(H100, index) for index in range(2)]
    (pool,) = pools_of(
        dra_node("n"),
        raw_slice("n", devices[:1], name="a", count=2),
        raw_slice("n", devices[1:], name="b", count=3),
    )
    assert "resourceSliceCount 2 and 3" in pool.nodes[0].unusable


@pytest.mark.parametrize(
    ("devices", "driver", "reason"),
    [
        ([with_type("mig")], NVIDIA, "gpu-0: type=mig, a MIG device"),
        ([with_type("vfio")], NVIDIA, "gpu-0: type=vfio, bound to vfio for a virtual machine"),
        ([with_type("npu")], NVIDIA, "gpu-0: type=npu, expected gpu"),
        (
            [with_type("amdgpu-partition", amd_device(MI300X, index)) for index in range(8)],
            AMD,
            "gpu-0-128, gpu-1-129, gpu-2-130 and 5 more: type=amdgpu-partition, a partition of a"
            " GPU",
        ),
        ([{"name": "gpu-0"}], NVIDIA, "gpu-0: states no type, expected gpu"),
    ],
)
def test_what_is_no_whole_gpu_is_never_planned_on(devices, driver, reason):
    (pool,) = pools_of(dra_node("n"), raw_slice("n", devices, driver=driver))
    assert pool.accelerator is None
    assert pool.unrecognised == f"n: ResourceSlices of {driver} list no whole GPU: {reason}"


def test_a_mig_device_next_to_whole_gpus_is_noted():
    devices = [*(nvidia_device(H100, index) for index in range(7)), with_type("mig")]
    devices[-1]["name"] = "gpu-7-mig"
    (pool,) = pools_of(dra_node("n"), raw_slice("n", devices))
    assert pool.free == 7
    assert pool.notes == ("gpu-7-mig: type=mig, a MIG device",)


@pytest.mark.parametrize("effect", ["NoSchedule", "NoExecute"])
def test_a_tainted_device_is_no_capacity(effect):
    devices = [with_taint(effect), *(nvidia_device(H100, index) for index in range(1, 8))]
    (pool,) = pools_of(dra_node("n"), raw_slice("n", devices))
    assert (pool.total, pool.allocatable, pool.free) == (8, 7, 7)
    assert pool.notes == ("gpu-0: device taint gpu-unhealthy",)


def test_a_taint_without_effect_on_scheduling_does_not_matter():
    (pool,) = pools_of(dra_node("n"), raw_slice("n", [with_taint("None")]))
    assert pool.free == 1


def test_a_node_whose_devices_are_all_tainted_says_so():
    devices = [with_taint("NoSchedule", index) for index in range(2)]
    (pool,) = pools_of(dra_node("n"), raw_slice("n", devices))
    assert pool.nodes[0].unusable == "gpu-0, gpu-1: device taint gpu-unhealthy"


def test_different_gpus_of_one_node_are_refused_with_both():
    devices = [nvidia_device(H100, 0), nvidia_device(H100 | {"product": "NVIDIA L40S"}, 1)]
    (pool,) = pools_of(dra_node("n"), raw_slice("n", devices))
    assert (
        "gpu.nvidia.com/productName=NVIDIA H100 80GB HBM3 (gpu-0), "
        "gpu.nvidia.com/productName=NVIDIA L40S (gpu-1)"
    ) in pool.unrecognised


@pytest.mark.parametrize(
    ("labels", "kind", "both"),
    [
        (
            L40S_LABELS,
            H100,
            ("nvidia.com/gpu.product=NVIDIA-L40S", "productName=NVIDIA H100 80GB HBM3"),
        ),
        (
            nvidia_labels("NVIDIA-H100-80GB-HBM3", 40000),
            H100,
            ("nvidia.com/gpu.memory=40000", "h100-sxm-80gb"),
        ),
        (
            nvidia_labels("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 81559),
            H100,
            ("nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", "type=gpu"),
        ),
        (
            {
                "nvidia.com/cuda.runtime-version.major": "12",
                "nvidia.com/cuda.runtime-version.minor": "9",
            },
            H100,
            ("CUDA 13.0", "12.9"),
        ),
        ({}, H100 | {"capability": "8.9.0"}, ("sm_89", "sm_90")),
        ({}, H100 | {"memory": 143771}, ("memory=143771", "h100-sxm-80gb")),
        (
            MI300X_LABELS | {"amd.com/gpu.device-id": "74a5"},
            MI300X,
            ("amd.com/gpu.device-id=74a5", "gpu.amd.com/deviceID=0x74a1"),
        ),
        (
            MI300X_LABELS | {"amd.com/gpu.compute-memory-partition": "cpx_nps4"},
            MI300X,
            (
                "amd.com/gpu.compute-memory-partition=cpx_nps4",
                "gpu.amd.com/partitionProfile=spx_nps1",
            ),
        ),
    ],
)
def test_labels_and_slices_that_disagree_are_refused_with_both_values(labels, kind, both):
    (pool,) = pools_of(dra_node("n", labels), gpu_slice("n", kind))
    assert pool.accelerator is None
    for value in both:
        assert value in pool.unrecognised


def test_labels_and_slices_that_agree_are_one_fact():
    (pool,) = pools_of(dra_node("n", MI300X_LABELS), gpu_slice("n", MI300X))
    assert (pool.accelerator.id, pool.resource, pool.free) == ("mi300x", AMD_RESOURCE, 8)


def test_a_missing_device_class_is_named():
    (pool,) = pools_of(dra_node("n"), gpu_slice("n"), device_class("gpu.amd.com"))
    assert pool.nodes[0].unusable == (
        "DeviceClass gpu.nvidia.com does not exist: install gpu.nvidia.com"
    )


def test_numbers_of_aligned_gpus_are_those_of_the_fullest_numa_node_and_root():
    published = publish("n", [DevicePool.of([read_slice(gpu_slice("n"))])], None)
    assert dict(published[0].aligned) == {
        "resource.kubernetes.io/numaNode": 4,
        "resource.kubernetes.io/pcieRoot": 1,
    }


# Claims


def test_claims_hold_their_devices_and_nothing_else():
    (pool,) = pools_of(
        dra_node("n"),
        gpu_slice("n"),
        claim("a", "n", ["gpu-0", "gpu-1"]),
        claim("b", "n", ["gpu-1", "gpu-2"]),
        claim("other", "n", ["gpu-3"], driver="net.example.com"),
        claim("elsewhere", "m", ["gpu-4"]),
        claim("admin", "n", ["gpu-5"], admin=True),
    )
    assert pool.free == 5


def test_a_tainted_device_that_a_claim_holds_is_subtracted_once():
    devices = [with_taint("NoSchedule"), *(nvidia_device(H100, index) for index in range(1, 8))]
    (pool,) = pools_of(dra_node("n"), raw_slice("n", devices), claim("a", "n", ["gpu-0", "gpu-1"]))
    assert pool.free == 6


def test_a_partition_in_use_excludes_its_gpu():
    def counted(device, gpu):
        return device | {"consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {}}]}

    devices = [counted(nvidia_device(H100, index), index) for index in range(2)]
    devices.append(counted(with_type("mig") | {"name": "gpu-0-mig"}, 0))
    objects = dra_node("n"), raw_slice("n", devices)
    (unused,) = pools_of(*objects)
    (used,) = pools_of(*objects, claim("a", "n", ["gpu-0-mig"]))
    assert (unused.free, used.free) == (2, 1)


def test_a_pod_holds_what_its_claim_holds_not_what_it_requests():
    pod = gpu_pod_body("p", node="n", gpus={"nvidia": "8"})
    pod["metadata"]["uid"] = "uid-p"
    claimed = claim("p-extended-resources", "n", ["gpu-0", "gpu-1"], pods=["uid-p"])
    (pool,) = pools_of(dra_node("n"), gpu_slice("n"), pod, claimed)
    assert pool.free == 6


def test_a_pod_whose_claim_is_not_known_yet_holds_what_it_requests():
    pod = gpu_pod_body("p", node="n", gpus={"nvidia": "3"})
    (pool,) = pools_of(dra_node("n"), gpu_slice("n"), pod)
    assert pool.free == 5


def test_pods_of_the_device_plugin_on_other_nodes_count_as_before():
    pod = gpu_pod_body("p", node="a", gpus={"nvidia": "3"})
    pools = pools_of(
        nvidia_node("a"), dra_node("b"), gpu_slice("b"), pod, claim("c", "b", ["gpu-0"])
    )
    assert {pool.name: pool.free for pool in pools} == {
        "nvidia-h100-sxm-80gb": 5,
        "nvidia-h100-sxm-80gb-dra": 7,
    }


def test_drivers_of_other_devices_are_ignored():
    assert pools_of(dra_node("n"), claim("a", "n", ["x"])) == ()
    assert read_slice(raw_slice("n", [], driver="net.example.com")) is None


def test_a_pod_of_an_extended_resource_holds_what_its_claim_holds():
    """The scheduler makes the claim (KEP-5004): the GPU is of the pod, so of its object."""
    pod = gpu_pod_body("p", node="n", labels={"tonnage.dev/inferencedeployment": "llama"})
    pod["metadata"]["uid"] = "u"
    pod["spec"]["containers"][0]["resources"] = {"limits": {NVIDIA_RESOURCE: "2"}}
    held = claim("c", "n", ["gpu-0", "gpu-1"], pods=["u"])
    for claims in ((), (held,)):  # before and after the event of the claim
        fleet = [dra_node("n"), gpu_slice("n"), pod, *claims]
        (pool,) = pools_of(*fleet)
        assert pool.free == 6
        (own,) = pools_of(*fleet, excluding=(pod["metadata"]["namespace"], "llama"))
        assert own.free == 8


def test_a_device_class_changes_the_nodes_of_its_driver_alone():
    allocations = Allocations()
    allocations.put_slice(read_slice(gpu_slice("n")))
    allocations.put_slice(read_slice(gpu_slice("a", MI300X)))
    nvidia, amd, other = (
        read_device_class(device_class(name)) for name in (NVIDIA, AMD, "mig.nvidia.com")
    )
    assert allocations.set_classes([nvidia, amd]) == set()
    assert allocations.set_classes([nvidia, amd, other]) == set()
    assert allocations.set_classes([nvidia, other]) == {"a"}
    assert allocations.set_classes(None) == {"a"}


def test_a_replica_whose_device_is_tainted_while_it_runs_needs_no_other():
    """The scheduler leaves the pod where it is (NoSchedule): no GPU is assumed for a next one."""
    devices = [with_taint("NoSchedule"), *(nvidia_device(H100, index) for index in range(1, 8))]
    pod = gpu_pod_body("p", node="n", labels={"tonnage.dev/inferencedeployment": "llama"})
    pod["metadata"] |= {"uid": "u", "labels": pod["metadata"]["labels"] | {PLACEMENT: "x"}}
    pod["spec"] |= {"resourceClaims": [{"name": "gpus"}], "containers": [{"name": "vllm"}]}
    held = claim("c", "n", ["gpu-0", "gpu-1"], pods=["u"])
    owner = (pod["metadata"]["namespace"], "llama")
    name = "nvidia-h100-sxm-80gb-dra"
    (pool,) = pools_of(
        dra_node("n"),
        raw_slice("n", devices),
        pod,
        held,
        reservations=(Reservation(owner, "x", name, Footprint(2), 1),),
    )
    assert (pool.total, pool.allocatable, pool.free) == (8, 7, 6)
