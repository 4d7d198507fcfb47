"""Pools built from nodes and pods: their nodes, and their free and reserved GPUs."""

from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import (
    H100,
    MI300X,
    MI355X,
    amd_node,
    gpu_pod_body,
    mixed_fleet,
    nvidia_labels,
    nvidia_node,
    raw_node,
    snapshot_of,
)
from tonnage.api.names import LABEL_SHARD
from tonnage.api.parse import InvalidSpecError
from tonnage.api.pod import Toleration
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import DeclaredPool, GpuPod, Partition, Pool, Reservation, Taint
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.fleet.pools.report import pool_readiness

OF_NO_SHARD = {LABEL_SHARD: ()}
CATALOG = load_catalog()


def pools_of(nodes: list[dict[str, Any]], **more: Any) -> dict[str, Pool]:
    excluding = more.pop("excluding", None)
    tolerations = more.pop("tolerations", ())
    snapshot = snapshot_of(nodes, **more)
    return {pool.name: pool for pool in build_pools(snapshot, CATALOG, excluding, tolerations)}


def declared(name: str, selector: dict[str, str], **spec: Any) -> DeclaredPool:
    body = {"metadata": {"name": name}, "spec": {"nodeSelector": selector, **spec}}
    pool = read_declared_pool(body)
    assert pool is not None
    return pool


def pod(name: str, node: str | None, *, gpus: dict[str, str]) -> GpuPod:
    pod = read_gpu_pod(gpu_pod_body(name, node=node, gpus=gpus))
    assert pod is not None
    return pod


def replica(node: str, gpus: int, placement: str = "h100") -> GpuPod:
    return GpuPod(f"{node}-{gpus}", node, {"nvidia.com/gpu": gpus}, ("chat", "llama"), placement)


def free(pool: Pool) -> dict[str, int]:
    return {node.name: node.free for node in pool.nodes}


def test_the_mixed_fleet_is_grouped_by_accelerator() -> None:
    counts = {name: (pool.total, len(pool.nodes)) for name, pool in pools_of(mixed_fleet()).items()}
    assert counts == {
        "amd-mi300x": (32, 4),
        "amd-mi355x": (8, 1),
        "nvidia-h100-sxm-80gb": (32, 4),
        "nvidia-h200-sxm-141gb": (16, 2),
        "nvidia-l40s": (8, 2),
    }


def test_a_discovered_pool_is_selected_by_the_labels_of_its_cards() -> None:
    pools = pools_of(mixed_fleet())
    assert pools["nvidia-l40s"].node_selector == {"nvidia.com/gpu.product": ("NVIDIA-L40S",)}
    assert pools["amd-mi300x"].node_selector == {
        "amd.com/gpu.device-id": ("74a1", "74a9"),
        "amd.com/gpu.compute-memory-partition": ("spx_nps1",),
    }


def test_the_selector_stays_when_a_node_with_another_id_of_the_card_joins() -> None:
    before = pools_of([amd_node("a")])["amd-mi300x"].node_selector
    joined = amd_node("b", MI300X | {"amd.com/gpu.device-id": "74a9"})
    after = pools_of([amd_node("a"), joined])["amd-mi300x"].node_selector
    assert {key: set(values) for key, values in after.items()} == {
        key: set(values) for key, values in before.items()
    }


def test_virtual_functions_are_a_pool_of_their_own_with_less_memory() -> None:
    virtual = amd_node("v", MI300X | {"amd.com/gpu.device-id": "74b5"})
    pools = pools_of([amd_node("a"), virtual])
    assert pools["amd-mi300x"].device_bytes == 206141652992
    assert pools["amd-mi300x-vf"].device_bytes == 205825570242


def test_more_labels_that_name_the_card_make_no_other_pool() -> None:
    by_cloud = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    by_type = {"node.kubernetes.io/instance-type": "p5.48xlarge"}
    nodes = [
        nvidia_node("gfd"),
        nvidia_node("gfd-and-gke", H100 | by_cloud),
        nvidia_node("gfd-and-eks", H100 | by_type),
        amd_node("labeller"),
        amd_node("labeller-and-nfd", MI300X | {"feature.node.kubernetes.io/amd-gpu": "true"}),
    ]
    pools = {name: [node.name for node in pool.nodes] for name, pool in pools_of(nodes).items()}
    assert pools == {
        "nvidia-h100-sxm-80gb": ["gfd", "gfd-and-eks", "gfd-and-gke"],
        "amd-mi300x": ["labeller", "labeller-and-nfd"],
    }


def test_cards_identified_by_different_labels_are_separate_pools() -> None:
    gke = nvidia_node("g", {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"})
    assert set(pools_of([gke])) == {"nvidia-h100-sxm-80gb"}
    assert set(pools_of([gke, nvidia_node("a")])) == {
        "nvidia-h100-sxm-80gb",
        "nvidia-h100-sxm-80gb-gke-accelerator",
    }


def test_whole_gpus_of_the_mixed_strategy_keep_their_resource() -> None:
    pools = pools_of([raw_node("a", MI300X, {"amd.com/spx_nps1": "8"})])
    assert pools["amd-mi300x-spx-nps1"].resource == "amd.com/spx_nps1"


def test_unrecognised_devices_are_shown_with_the_reason() -> None:
    shared = nvidia_node("s", nvidia_labels("NVIDIA-L40S-SHARED", 46068), gpus=32)
    nameless = raw_node("m", {}, {"nvidia.com/mig-1g.10gb": "7"})
    pools = pools_of([shared, nameless])
    assert set(pools) == {"nvidia-unrecognised", "nvidia-unrecognised-mig-1g-10gb"}
    pool = pools["nvidia-unrecognised"]
    assert pool.accelerator is None
    assert (pool.total, pool.free) == (32, 0)
    assert pool.unrecognised is not None
    assert "a share of a GPU is not a whole GPU" in pool.unrecognised
    assert pool.unrecognised == f"s: {pool.nodes[0].unusable}"


def test_a_declaration_is_advised_only_where_it_helps() -> None:
    shared = nvidia_node("s", nvidia_labels("NVIDIA-L40S-SHARED", 46068), gpus=32)
    unlabelled = nvidia_node("u", {})
    advice = "declare an AcceleratorPool that selects these nodes and names spec.accelerator"
    reasons = [
        pools_of(nodes)["nvidia-unrecognised"].unrecognised or ""
        for nodes in ([shared], [unlabelled], [shared, unlabelled])
    ]
    assert [advice in reason for reason in reasons] == [False, True, True]
    assert "(and another cause)" in reasons[2]


def test_nodes_without_gpus_are_in_no_pool() -> None:
    assert pools_of([raw_node("cpu", {}, {})]) == {}


def test_a_node_without_a_device_plugin_is_in_the_pool_of_its_labels_and_unusable() -> None:
    nodes = [nvidia_node("h100-0"), raw_node("h100-1", H100, {"nvidia.com/gpu": "0"})]
    pool = pools_of(nodes)["nvidia-h100-sxm-80gb"]
    assert (len(pool.nodes), pool.total, pool.free, pool.nodes.counts.usable) == (2, 8, 8, 1)
    assert pool.node_selector == pools_of(nodes[:1])["nvidia-h100-sxm-80gb"].node_selector
    (unplugged,) = pool.nodes.unusable()
    assert unplugged.name == "h100-1"
    assert "is the device plugin running?" in (unplugged.unusable or "")


def test_names_are_dns_labels_whatever_the_resource_is_called() -> None:
    long = raw_node("m", {}, {"nvidia.com/mig-" + "9g.99gb+me.a." * 3 + "b": "7"})
    (name,) = pools_of([long])
    assert len(name) <= 63
    assert name.strip("-") == name
    assert "." not in name


class TestDeclaredPools:
    def test_a_declared_pool_takes_its_nodes_first(self) -> None:
        nodes = [nvidia_node("a", H100 | {"team": "chat"}), nvidia_node("b")]
        pools = pools_of(nodes, declared_pools=(declared("chat", {"team": "chat"}),))
        assert [node.name for node in pools["chat"].nodes] == ["a"]
        assert [node.name for node in pools["nvidia-h100-sxm-80gb"].nodes] == ["b"]
        assert pools["chat"].node_selector == {"team": ("chat",)}

    def test_a_discovered_pool_does_not_select_declared_nodes(self) -> None:
        nodes = [nvidia_node("a", H100 | {"team": "chat"}), nvidia_node("b")]
        pools = pools_of(nodes, declared_pools=(declared("chat", {"team": "chat"}),))
        assert pools["nvidia-h100-sxm-80gb"].node_exclusion == {"team": ("chat",), **OF_NO_SHARD}
        assert pools["chat"].node_exclusion == OF_NO_SHARD

    def test_overlapping_pools_share_no_node_and_report_it(self) -> None:
        nodes = [nvidia_node("a", H100 | {"x": "1", "y": "1"}), nvidia_node("b", H100 | {"y": "1"})]
        pools = pools_of(
            nodes, declared_pools=(declared("second", {"y": "1"}), declared("first", {"x": "1"}))
        )
        assert [node.name for node in pools["first"].nodes] == ["a"]
        assert [node.name for node in pools["second"].nodes] == ["b"]
        assert pools["second"].overlaps == ("first",)
        assert pools["second"].node_exclusion == {"x": ("1",), **OF_NO_SHARD}

    def test_a_declared_accelerator_replaces_labels(self) -> None:
        nodes = [nvidia_node("a", {"team": "chat"})]
        pool = declared("chat", {"team": "chat"}, accelerator="h200-sxm-141gb")
        chat = pools_of(nodes, declared_pools=(pool,))["chat"]
        assert chat.accelerator is CATALOG.accelerator("h200-sxm-141gb")
        assert chat.free == 8

    def test_a_declared_accelerator_does_not_make_a_shared_gpu_whole(self) -> None:
        labels = nvidia_labels("NVIDIA-L40S-SHARED", 46068) | {"team": "chat"}
        pool = declared("chat", {"team": "chat"}, accelerator="l40s")
        chat = pools_of([nvidia_node("a", labels)], declared_pools=(pool,))["chat"]
        assert chat.free == 0
        assert "a share of a GPU" in (chat.nodes[0].unusable or "")

    @pytest.mark.parametrize("name", ["H200-SXM-141GB", "h200-sxm", "NVIDIA H200 SXM5 141GB"])
    def test_a_declared_accelerator_has_any_name_that_means_one(self, name: str) -> None:
        pool = declared("chat", {"team": "chat"}, accelerator=name)
        chat = pools_of([nvidia_node("a", {"team": "chat"})], declared_pools=(pool,))["chat"]
        assert chat.accelerator is CATALOG.accelerator("h200-sxm-141gb")

    def test_a_declared_family_of_several_is_reported_with_its_members(self) -> None:
        pool = declared("chat", {"team": "chat"}, accelerator="H200")
        chat = pools_of([nvidia_node("a", {"team": "chat"})], declared_pools=(pool,))["chat"]
        assert chat.accelerator is None
        assert "expected one of h200-sxm-141gb, h200-nvl-141gb" in (chat.unrecognised or "")

    def test_an_unknown_accelerator_is_reported_with_the_nearest_one(self) -> None:
        pool = declared("chat", {"team": "chat"}, accelerator="mi300")
        chat = pools_of([amd_node("a", MI300X | {"team": "chat"})], declared_pools=(pool,))["chat"]
        assert chat.accelerator is None
        assert "spec.accelerator of AcceleratorPool chat" in (chat.unrecognised or "")
        assert "mi300x" in (chat.unrecognised or "")

    def test_different_cards_in_one_pool_are_refused_by_name(self) -> None:
        nodes = [amd_node("a", MI300X | {"t": "1"}), amd_node("b", MI355X | {"t": "1"})]
        pool = pools_of(nodes, declared_pools=(declared("both", {"t": "1"}),))["both"]
        assert pool.accelerator is None
        assert "mi300x as amd.com/gpu on 1 nodes, mi355x as" in (pool.unrecognised or "")

    def test_one_unrecognised_node_excludes_no_other_node(self) -> None:
        shared = nvidia_labels("NVIDIA-H100-80GB-HBM3-SHARED", 81559) | {"t": "1"}
        nodes = [nvidia_node("a", H100 | {"t": "1"}), nvidia_node("b", shared)]
        pool = pools_of(nodes, declared_pools=(declared("one", {"t": "1"}),))["one"]
        assert free(pool) == {"a": 8, "b": 0}

    def test_whole_gpus_and_parts_of_them_in_one_pool_are_refused_by_name(self) -> None:
        sliced = nvidia_labels("NVIDIA-H100-80GB-HBM3-MIG-1g.10gb", 9728) | {"t": "1"}
        nodes = [nvidia_node("a", H100 | {"t": "1"}), nvidia_node("b", sliced)]
        pool = pools_of(nodes, declared_pools=(declared("one", {"t": "1"}),))["one"]
        assert pool.accelerator is None
        assert "nvidia.com/gpu (1g.10gb) on 1 nodes" in (pool.unrecognised or "")

    def test_a_pool_without_nodes_exists(self) -> None:
        declaration = declared("empty", {"team": "none"}, accelerator="l40s")
        pool = pools_of([], declared_pools=(declaration,))["empty"]
        assert not pool.nodes
        assert pool.resource == "nvidia.com/gpu"

    def test_a_discovered_pool_leaves_a_declared_one_its_name(self) -> None:
        nodes = [amd_node("a", MI300X | {"t": "1"}), amd_node("b")]
        pools = pools_of(nodes, declared_pools=(declared("amd-mi300x", {"t": "1"}),))
        assert [node.name for node in pools["amd-mi300x"].nodes] == ["a"]
        assert [node.name for node in pools["amd-mi300x-2"].nodes] == ["b"]

    def test_a_discovered_pool_is_not_read_back(self) -> None:
        labels = {"tonnage.dev/discovered": "true"}
        body = {
            "metadata": {"name": "amd-mi300x", "labels": labels},
            "spec": {"nodeSelector": {"a": "b"}},
        }
        assert read_declared_pool(body) is None

    @pytest.mark.parametrize(
        ("body", "want"),
        [
            ({"spec": {"nodeSelector": {"a": "b"}}}, "metadata.name: is required"),
            ({"metadata": {"name": "p"}}, "AcceleratorPool p: spec"),
            ({"metadata": {"name": "p"}, "spec": {"nodeSelector": {}}}, "spec.nodeSelector"),
            (
                {
                    "metadata": {"name": "p"},
                    "spec": {"nodeSelector": {"a": "b"}, "costPerGPUHour": "cheap"},
                },
                "AcceleratorPool p: spec.costPerGPUHour",
            ),
        ],
    )
    def test_a_bad_pool_names_itself_and_its_field(self, body: dict[str, Any], want: str) -> None:
        with pytest.raises(InvalidSpecError, match=want):
            read_declared_pool(body)


class TestFreeGpus:
    def test_all_pods_on_a_node_reduce_its_free_gpus(self) -> None:
        pods = (
            pod("a", "h", gpus={"nvidia": "2"}),
            pod("b", "h", gpus={"nvidia": "1"}),
            pod("waiting", None, gpus={"nvidia": "4"}),
        )
        assert free(pools_of([nvidia_node("h")], pods=pods)["nvidia-h100-sxm-80gb"]) == {"h": 5}

    def test_more_requests_than_gpus_leave_none(self) -> None:
        pods = (pod("a", "h", gpus={"nvidia": "12"}),)
        assert pools_of([nvidia_node("h")], pods=pods)["nvidia-h100-sxm-80gb"].free == 0

    def test_gpus_of_another_resource_do_not_count(self) -> None:
        pods = (pod("a", "h", gpus={"amd": "8"}),)
        assert pools_of([nvidia_node("h")], pods=pods)["nvidia-h100-sxm-80gb"].free == 8

    def test_an_unusable_node_counts_in_the_total_only(self) -> None:
        pool = pools_of([amd_node("a", cordoned=True), amd_node("b")])["amd-mi300x"]
        assert (pool.total, pool.allocatable, pool.free) == (16, 8, 8)
        assert [node.unusable for node in pool.nodes] == ["cordoned", None]

    def test_a_failed_device_plugin_is_reported(self) -> None:
        body = amd_node("a")
        body["status"]["allocatable"]["amd.com/gpu"] = "0"
        pool = pools_of([body])["amd-mi300x"]
        assert pool.nodes[0].unusable == "none of its 8 GPUs is allocatable"

    def test_a_node_named_twice_is_counted_once(self) -> None:
        assert pools_of([amd_node("a"), amd_node("a")])["amd-mi300x"].total == 8


DEDICATED = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
USUAL = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
TOLERATIONS = {
    "its key exists": (Toleration(key="dedicated", operator="Exists"), 8),
    "everything": (Toleration(operator="Exists"), 8),
    "its key and value": (Toleration(key="dedicated", value="train"), 8),
    "another value": (Toleration(key="dedicated", value="serve"), 0),
    "another key": (Toleration(key="team", operator="Exists"), 0),
    "another effect": (Toleration(key="dedicated", operator="Exists", effect="NoExecute"), 0),
}


class TestTaints:
    def test_the_usual_taints_are_to_be_tolerated(self) -> None:
        pool = pools_of([nvidia_node("a", taints=[USUAL])])["nvidia-h100-sxm-80gb"]
        assert pool.free == 8
        assert pool.taints == (Taint("nvidia.com/gpu", "present", "NoSchedule"),)

    def test_an_untolerated_taint_makes_the_node_no_capacity(self) -> None:
        pool = pools_of([nvidia_node("a", taints=[DEDICATED])])["nvidia-h100-sxm-80gb"]
        assert pool.free == 0
        assert pool.nodes[0].unusable == "taint dedicated=train:NoSchedule is not tolerated"

    def test_a_declared_toleration_makes_it_capacity(self) -> None:
        nodes = [nvidia_node("a", H100 | {"t": "1"}, taints=[DEDICATED])]
        tolerations = [{"key": "dedicated", "operator": "Equal", "value": "train"}]
        pool = declared("mine", {"t": "1"}, tolerations=tolerations)
        assert pools_of(nodes, declared_pools=(pool,))["mine"].free == 8

    @pytest.mark.parametrize(("toleration", "want"), TOLERATIONS.values(), ids=TOLERATIONS.keys())
    def test_a_toleration_of_the_pods_makes_it_capacity(
        self, toleration: Toleration, want: int
    ) -> None:
        nodes = [nvidia_node("a", taints=[DEDICATED])]
        assert pools_of(nodes, tolerations=(toleration,))["nvidia-h100-sxm-80gb"].free == want


def test_a_processor_without_an_image_is_no_capacity() -> None:
    arm = amd_node("a", MI300X | {"kubernetes.io/arch": "arm64"})
    superchip = nvidia_node(
        "g", nvidia_labels("NVIDIA-GB200", 189471) | {"kubernetes.io/arch": "arm64"}
    )
    pools = pools_of([arm, superchip])
    assert pools["amd-mi300x"].free == 0
    assert "kubernetes.io/arch=arm64" in (pools["amd-mi300x"].nodes[0].unusable or "")
    assert pools["nvidia-gb200-192gb"].free == 8


def test_the_oldest_driver_of_a_pool_decides_for_all_of_it() -> None:
    def node(name: str, cuda: str) -> Any:
        return nvidia_node(name, H100 | {"nvidia.com/cuda.runtime-version.full": cuda})

    assert pools_of([nvidia_node("a")])["nvidia-h100-sxm-80gb"].cuda is None
    newer = [nvidia_node("a"), node("b", "13.0")]
    assert pools_of(newer)["nvidia-h100-sxm-80gb"].cuda == (13, 0)
    older = pools_of([*newer, node("c", "12.8"), node("d", "11.4")])["nvidia-h100-sxm-80gb"]
    assert older.cuda == (12, 8)
    assert free(older)["d"] == 0
    assert "CUDA 11.4, every vLLM image needs 12.2" in (older.nodes[3].unusable or "")


def test_partitions_are_separate_pools_with_their_own_memory() -> None:
    partitioned = MI300X | {
        "amd.com/gpu.compute-memory-partition": "cpx_nps4",
        "amd.com/gpu.vram": "24G",
        "amd.com/gpu.cu-count": "38",
        "amd.com/gpu.simd-count": "152",
    }
    pools = pools_of([amd_node("a"), amd_node("b", partitioned, gpus=64)])
    part = pools["amd-mi300x-cpx-nps4"]
    assert part.partition == Partition("cpx_nps4", 206141652992 // 8, 1 / 8)
    assert (part.device_bytes, part.free) == (206141652992 // 8, 64)
    assert part.node_selector["amd.com/gpu.compute-memory-partition"] == ("cpx_nps4",)
    assert pools["amd-mi300x"].partition is None


def test_other_resources_of_a_node_are_named_in_the_condition() -> None:
    mixed = raw_node("m", H100, {"nvidia.com/gpu": "4", "nvidia.com/mig-1g.10gb": "28"})
    pool = pools_of([mixed, nvidia_node("a")])["nvidia-h100-sxm-80gb"]
    note = "nvidia.com/mig-1g.10gb (28) is left out: a node belongs to one resource"
    assert pool.notes == (note,)
    assert note in pool_readiness(pool).message


def test_nodes_with_a_less_specific_label_exclude_more_specific_ones() -> None:
    gke = nvidia_node("g", {"cloud.google.com/gke-accelerator": "nvidia-l4"})
    assert pools_of([gke])["nvidia-l4"].node_exclusion == {
        "nvidia.com/gpu.product": (),
        "cloud.google.com/gke-gpu-sharing-strategy": (),
        "cloud.google.com/gke-gpu-partition-size": (),
        **OF_NO_SHARD,
    }
    assert pools_of([nvidia_node("a")])["nvidia-h100-sxm-80gb"].node_exclusion == OF_NO_SHARD


class TestReservations:
    NODES = (nvidia_node("a"), nvidia_node("b"))

    def reserve(self, gpus: int, replicas: int) -> Reservation:
        return Reservation(
            ("chat", "llama"), "h100", "nvidia-h100-sxm-80gb", Footprint(gpus), replicas
        )

    def free_after(
        self, *reservations: Reservation, pods: tuple[GpuPod, ...] = (), **more: Any
    ) -> Any:
        pools = pools_of(list(self.NODES), reservations=reservations, pods=pods, **more)
        return free(pools["nvidia-h100-sxm-80gb"])

    def test_unscheduled_replicas_reduce_free_gpus(self) -> None:
        assert self.free_after(self.reserve(4, 3)) == {"a": 0, "b": 4}

    def test_replicas_that_are_scheduled_are_not_counted_twice(self) -> None:
        assert self.free_after(self.reserve(4, 2), pods=(replica("a", 4),)) == {"a": 0, "b": 8}

    def test_a_replica_takes_the_smallest_sufficient_block(self) -> None:
        pods = (pod("x", "b", gpus={"nvidia": "5"}),)
        assert self.free_after(self.reserve(2, 1), pods=pods) == {"a": 8, "b": 1}

    def test_the_largest_replicas_are_packed_first(self) -> None:
        small = self.reserve(2, 1)
        large = Reservation(("chat", "big"), "h100", "nvidia-h100-sxm-80gb", Footprint(8), 1)
        assert self.free_after(small, large) == {"a": 0, "b": 6}

    def test_a_successor_reserves_only_gpus_that_its_predecessor_lacks(self) -> None:
        assert self.free_after(self.reserve(4, 1), pods=(replica("a", 1),)) == {"a": 4, "b": 8}

    def test_too_few_free_gpus_next_to_a_predecessor_are_reserved(self) -> None:
        others = (pod("x", "a", gpus={"nvidia": "4"}), pod("y", "b", gpus={"nvidia": "8"}))
        pods = (replica("a", 3), *others)
        assert self.free_after(self.reserve(4, 1), pods=pods) == {"a": 0, "b": 0}

    def test_a_replica_that_fits_no_block_takes_none(self) -> None:
        pods = (pod("x", "a", gpus={"nvidia": "6"}), pod("y", "b", gpus={"nvidia": "6"}))
        assert self.free_after(self.reserve(4, 1), pods=pods) == {"a": 2, "b": 2}

    def test_absurd_numbers_terminate(self) -> None:
        assert self.free_after(self.reserve(1, 10**12), self.reserve(0, 5)) == {"a": 0, "b": 0}

    def test_a_new_plan_may_use_the_gpus_of_its_owner(self) -> None:
        free_gpus = self.free_after(
            self.reserve(4, 3), pods=(replica("a", 4),), excluding=("chat", "llama")
        )
        assert free_gpus == {"a": 8, "b": 8}

    def test_a_new_plan_may_not_use_the_gpus_of_others(self) -> None:
        free_gpus = self.free_after(
            self.reserve(4, 1), pods=(replica("a", 4),), excluding=("chat", "other")
        )
        assert free_gpus == {"a": 4, "b": 8}
