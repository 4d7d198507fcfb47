"""What the claim of a pool's pods requests, and how a declared pool chooses between both ways."""

import re

import pytest

from tests.support.fleets.dra_objects import (
    AMD_RESOURCE,
    MI300X,
    NVIDIA_RESOURCE,
    dra_node,
    gpu_slice,
    nvidia_device,
    old_amd_device,
)
from tests.support.fleets.gpu_nodes import nvidia_node
from tonnage.api.parse import parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.catalog.load import load_catalog
from tonnage.fleet.dra.read import read_slice
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import DeclaredPool, FleetSnapshot
from tonnage.fleet.nodes.node import read_node

TEAM = {"team": "chat"}


def pool_of(nodes, slices, **spec):
    declared = parse_model(AcceleratorPoolSpec, {"nodeSelector": TEAM} | spec, "spec")
    snapshot = FleetSnapshot(
        tuple(map(read_node, nodes)),
        declared_pools=(DeclaredPool("chat", {}, declared),),
        slices=tuple(map(read_slice, slices)),
    )
    (pool,) = build_pools(snapshot, load_catalog())
    return pool


def dra(name="a", **how):
    return [dra_node(name, TEAM)], [gpu_slice(name, **how)]


def test_every_attribute_is_read_only_where_the_device_has_it():
    """A missing key aborts the scheduling of the pod, on whatever node it is."""
    for kind in ({}, {"kind": MI300X}):
        for selector in pool_of(*dra(**kind)).claim.selectors:
            for alternative in selector.removeprefix("(").removesuffix(")").split(") || ("):
                guard, _, rest = alternative.partition(" && ")
                guarded = re.fullmatch(r'"(\w+)" in device\.(\w+)\["[a-z.]+"\]', guard)
                assert guarded, selector
                read = re.findall(r'device\.(\w+)\["[a-z.]+"\]\.(\w+)', rest)
                assert read
                assert {(group, name) for group, name in read} == {(guarded[2], guarded[1])}


def test_the_selector_names_the_product_of_both_releases_of_the_amd_driver():
    old, new = (
        pool_of(*dra(kind=MI300X, device=device)).claim for device in (old_amd_device, None)
    )
    assert old == new
    assert any("deviceID" in each and "productName" in each for each in new.selectors)


def test_an_accelerator_that_the_pool_declares_is_selected_by_its_nodes_and_its_memory():
    claim = pool_of(*dra(), accelerator="h100-sxm-80gb").claim
    assert not any("productName" in each for each in claim.selectors)
    assert any("72981Mi" in each for each in claim.selectors)


def without_name(kind, index):
    device = nvidia_device(kind, index)
    del device["attributes"]["productName"]
    return device


def test_gpus_that_only_labels_name_need_a_pool_that_declares_them():
    """A claim selects by the attributes of devices: it would find none of these."""
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} | TEAM
    fleet = [dra_node("a", labels)], [gpu_slice("a", device=without_name)]
    unnamed, named = pool_of(*fleet), pool_of(*fleet, accelerator="h100-sxm-80gb")
    assert (unnamed.free, unnamed.claim) == (0, None)
    assert "expected gpu.nvidia.com/productName" in unnamed.unrecognised
    assert (named.free, named.unrecognised) == (8, None)
    other = pool_of(*fleet, accelerator="h200-sxm-141gb")
    assert "gpu.product=NVIDIA-H100-80GB-HBM3 is h100-sxm-80gb" in other.nodes[0].unusable


@pytest.mark.parametrize(
    ("alignment", "attribute", "most"),
    [
        ("NUMANode", "resource.kubernetes.io/numaNode", 4),
        ("PCIeRoot", "resource.kubernetes.io/pcieRoot", 1),
        (None, None, 0),
    ],
)
def test_a_pool_may_ask_for_aligned_gpus(alignment, attribute, most):
    claim = pool_of(*dra(), deviceAlignment=alignment).claim
    assert (claim.aligned_by, claim.most_aligned) == (attribute, most)


def test_the_amd_driver_has_its_own_attribute_for_numa_nodes():
    claim = pool_of(*dra(kind=MI300X), deviceAlignment="NUMANode").claim
    assert (claim.aligned_by, claim.most_aligned) == ("gpu.amd.com/numaNode", 4)


def test_gpus_whose_driver_states_no_numa_node_are_not_aligned():
    claim = pool_of(*dra(kind=MI300X, device=old_amd_device), deviceAlignment="NUMANode").claim
    assert claim.most_aligned == 0


def test_an_extended_resource_needs_no_claim():
    pool = pool_of(*dra(kind=MI300X), allocation="ExtendedResource")
    assert (pool.resource, pool.claim, pool.free) == (AMD_RESOURCE, None, 8)


# Pools whose nodes move from the device plugin to a driver


def mixed(dra_nodes, plugin_nodes):
    names = [f"dra-{number}" for number in range(dra_nodes)]
    nodes = [dra_node(name, TEAM) for name in names]
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} | TEAM
    nodes += [nvidia_node(f"plugin-{number}", labels) for number in range(plugin_nodes)]
    return nodes, [gpu_slice(name) for name in names]


@pytest.mark.parametrize(
    ("fleet", "allocation", "resource", "free"),
    [
        (mixed(0, 2), None, "nvidia.com/gpu", 16),
        (mixed(1, 2), None, "nvidia.com/gpu", 16),
        (mixed(2, 2), None, NVIDIA_RESOURCE, 16),
        (mixed(1, 2), "ResourceClaim", NVIDIA_RESOURCE, 8),
        (mixed(2, 1), "DevicePlugin", "nvidia.com/gpu", 8),
    ],
)
def test_a_pool_uses_one_way_at_a_time(fleet, allocation, resource, free):
    pool = pool_of(*fleet, allocation=allocation)
    assert (pool.resource, pool.free, pool.unrecognised) == (resource, free, None)
    unusable = {node.name: node.unusable for node in pool.nodes if node.unusable}
    assert len(unusable) == len(pool.nodes) - free // 8
    for name, reason in unusable.items():
        assert ("of a device plugin" in reason) == name.startswith("plugin")


@pytest.mark.parametrize(
    ("fleet", "allocation"), [(mixed(0, 2), "ResourceClaim"), (mixed(2, 0), "DevicePlugin")]
)
def test_a_way_that_no_node_offers_is_named(fleet, allocation):
    pool = pool_of(*fleet, allocation=allocation)
    assert pool.free == 0
    assert f"spec.allocation of AcceleratorPool chat is {allocation}" in pool.unrecognised


LABELS = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"} | TEAM
"""As the labeller writes them, also before the driver lists the GPUs."""


def test_nodes_on_which_the_driver_does_not_run_yet_take_no_gpus_from_the_others():
    nodes = [dra_node(name, LABELS) for name in ("a", "b", "c")]
    pool = pool_of(nodes, [gpu_slice("a")])
    assert (pool.resource, pool.free, pool.unrecognised) == (NVIDIA_RESOURCE, 8, None)
    reason = "no ResourceSlice lists GPUs of it (is gpu.nvidia.com running?)"
    assert {node.name: node.unusable for node in pool.nodes} == {
        "a": None,
        "b": reason,
        "c": reason,
    }


@pytest.mark.parametrize("nodes", [[], [dra_node("a", TEAM)], [dra_node("a", LABELS)]])
@pytest.mark.parametrize(
    ("allocation", "resource", "is_claimed"),
    [
        (None, "nvidia.com/gpu", False),
        ("DevicePlugin", "nvidia.com/gpu", False),
        ("ResourceClaim", NVIDIA_RESOURCE, True),
        ("ExtendedResource", NVIDIA_RESOURCE, False),
    ],
)
def test_a_pool_whose_gpus_are_still_to_come_states_how_its_pods_get_them(
    nodes, allocation, resource, is_claimed
):
    """A node autoscaler adds the first node for pods that exist."""
    pool = pool_of(nodes, [], accelerator="h100-sxm-80gb", maxNodes=2, allocation=allocation)
    assert (pool.resource, pool.unrecognised) == (resource, None)
    assert (pool.claim is not None) == is_claimed


def test_no_way_is_wrong_while_no_node_offers_gpus():
    pool = pool_of([dra_node("a", LABELS)], [], allocation="ResourceClaim")
    assert pool.unrecognised == (
        "selects no node with GPUs; set spec.accelerator if the nodes are starting"
    )
