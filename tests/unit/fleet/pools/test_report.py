"""The status of a pool, and the object of a discovered one."""

from tests.support.fleets.gpu_nodes import H100, amd_node, nvidia_labels, nvidia_node, snapshot_of
from tonnage.api.conditions import Reason
from tonnage.api.parse import parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.catalog.load import load_catalog
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import Pool
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.fleet.pools.report import discovered_pool_body, pool_readiness, pool_status


def only_pool(*nodes: dict[str, object]) -> Pool:
    (pool,) = build_pools(snapshot_of(list(nodes)), load_catalog())
    return pool


def test_the_status_counts_gpus_and_names_unusable_nodes() -> None:
    status = pool_status(only_pool(amd_node("a", cordoned=True), amd_node("b", gpus=4)))
    assert status.to_dict() == {
        "accelerator": "mi300x",
        "nodes": 2,
        "gpus": {"total": 12, "allocatable": 4, "free": 4, "largestFreeBlock": 4},
        "unusableNodes": ["a: cordoned"],
        "conditions": [],
    }


def test_a_hundred_unusable_nodes_are_not_all_named() -> None:
    status = pool_status(only_pool(*(amd_node(f"n{n:03}", ready="False") for n in range(100))))
    assert len(status.unusable_nodes) == 20
    assert status.unusable_nodes[-1] == "and 81 more nodes"


def test_a_usable_pool_is_ready() -> None:
    readiness = pool_readiness(only_pool(amd_node("a", cordoned=True), amd_node("b")))
    assert (readiness.ready, readiness.reason) == (True, Reason.POOL_USABLE)
    assert readiness.message == "1 of 2 nodes usable, 8 of 16 GPUs free (a: cordoned)"


def test_a_pool_of_unusable_nodes_reports_why() -> None:
    readiness = pool_readiness(only_pool(amd_node("a", cordoned=True)))
    assert (readiness.ready, readiness.reason) == (False, Reason.NO_USABLE_NODES)
    assert "a: cordoned" in readiness.message


def test_an_unrecognised_pool_reports_how_to_declare_it() -> None:
    readiness = pool_readiness(only_pool(nvidia_node("a", nvidia_labels("NVIDIA-X9000", 1))))
    assert (readiness.ready, readiness.reason) == (False, Reason.UNRECOGNISED)
    assert "NVIDIA-X9000" in readiness.message
    assert "spec.accelerator" in readiness.message


def test_a_pool_without_labels_of_its_gpus_names_the_node_and_the_label() -> None:
    pool = only_pool(*(nvidia_node(name, {}) for name in ("gpu-1", "gpu-0", "gpu-2")))
    readiness = pool_readiness(pool)
    assert (readiness.ready, readiness.reason) == (False, Reason.UNRECOGNISED)
    assert readiness.message.startswith(
        "gpu-0 and 2 other nodes: no label names the accelerator: nvidia.com/gpu.product is"
        " missing, which GPU feature discovery writes; declare an AcceleratorPool"
    )


def test_the_first_node_of_the_commonest_cause_is_named() -> None:
    odd = nvidia_node("a", nvidia_labels("NVIDIA-X9000", 1))
    message = pool_readiness(only_pool(odd, nvidia_node("c", {}), nvidia_node("b", {}))).message
    assert message.startswith("b and 1 other node: no label names the accelerator")
    assert "(and another cause)" in message


def test_nodes_without_a_device_plugin_are_named_in_their_pool() -> None:
    unplugged = nvidia_node("h100-1", gpus=0)
    alone = pool_readiness(only_pool(unplugged))
    missing = (
        "h100-1: has nvidia.com/gpu.product=NVIDIA-H100-80GB-HBM3 but offers no nvidia.com/gpu (is"
        " the device plugin running?)"
    )
    assert (alone.reason, alone.message) == (
        Reason.NO_USABLE_NODES,
        f"none of 1 node is usable ({missing})",
    )
    mixed = pool_readiness(only_pool(nvidia_node("h100-0"), unplugged))
    assert mixed.ready
    assert mixed.message == f"1 of 2 nodes usable, 8 of 8 GPUs free ({missing})"


def test_a_declared_pool_without_nodes_is_not_ready() -> None:
    body = {"metadata": {"name": "p"}, "spec": {"nodeSelector": {"a": "b"}}}
    declared = read_declared_pool(body)
    assert declared is not None
    (pool,) = build_pools(snapshot_of([], declared_pools=(declared,)), load_catalog())
    assert pool_readiness(pool).reason is Reason.NO_NODES


def test_a_declared_pool_whose_nodes_are_all_in_another_names_it() -> None:
    spec = {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
    bodies = [{"metadata": {"name": name}, "spec": spec} for name in ("first", "second")]
    declared = tuple(pool for body in bodies if (pool := read_declared_pool(body)))
    pools = build_pools(
        snapshot_of([nvidia_node("a", H100)], declared_pools=declared), load_catalog()
    )
    (second,) = (pool for pool in pools if pool.name == "second")
    readiness = pool_readiness(second)
    assert readiness.reason is Reason.NO_NODES
    assert "are in first" in readiness.message


def test_the_object_of_a_discovered_pool_is_valid_and_never_read_back() -> None:
    pool = only_pool(nvidia_node("a", H100))
    body = discovered_pool_body(pool)
    assert body["metadata"]["name"] == "nvidia-h100-sxm-80gb"
    assert body["spec"] == {"nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}
    assert parse_model(AcceleratorPoolSpec, body["spec"], "spec")
    assert read_declared_pool(body) is None


def test_an_unrecognised_pool_is_described_by_labels_that_its_nodes_share() -> None:
    unknown = nvidia_labels("NVIDIA-X9000", 1)
    pool = only_pool(nvidia_node("a", unknown), nvidia_node("b", unknown))
    assert discovered_pool_body(pool)["spec"] == {
        "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-X9000"}
    }
