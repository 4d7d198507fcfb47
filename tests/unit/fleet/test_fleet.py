"""The fleet, event by event: which pools change, and which stay the same objects."""

from dataclasses import replace
from itertools import permutations
from typing import Any, ClassVar

import pytest

from tests.support.fleets.gpu_nodes import (
    H100,
    L40S,
    MI300X,
    Raw,
    amd_node,
    nvidia_labels,
    nvidia_node,
    raw_node,
)
from tonnage.api.names import LABEL_SHARD
from tonnage.api.pod import Toleration
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Pool, Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.fleet.pools.report import pool_readiness
from tonnage.fleet.resources import Resources

OF_NO_SHARD = {LABEL_SHARD: ()}
CATALOG = load_catalog()
H100_POOL, MI300X_POOL = "nvidia-h100-sxm-80gb", "amd-mi300x"
LLAMA = ("chat", "llama")


def fleet_of(*nodes: Raw, declared: tuple[DeclaredPool, ...] = ()) -> Fleet:
    fleet = Fleet(CATALOG)
    for pool in declared:
        fleet.declare(pool)
    for node in nodes:
        fleet.put_node(read_node(node))
    return fleet


def by_name(fleet: Fleet, **arguments: Any) -> dict[str, Pool]:
    return {pool.name: pool for pool in fleet.pools(**arguments)}


def declare(name: str, selector: dict[str, str], **spec: Any) -> DeclaredPool:
    pool = read_declared_pool(
        {"metadata": {"name": name}, "spec": {"nodeSelector": selector, **spec}}
    )
    assert pool is not None
    return pool


def pod(uid: str, node: str, gpus: int, owner: tuple[str, str] | None = None) -> GpuPod:
    return GpuPod(uid, node, {"nvidia.com/gpu": gpus}, owner, "h100" if owner else None)


def pod_with_cpu(uid: str, node: str, gpus: int, owner: tuple[str, str], cpu: int) -> GpuPod:
    return replace(pod(uid, node, gpus, owner), others=Resources(cpu))


def free(pool: Pool) -> dict[str, int]:
    return {node.name: node.free for node in pool.nodes}


def capacities(pool: Pool, gpus: int) -> tuple[int, int]:
    """Replicas on one node each that can start now, and after growth."""
    footprint = Footprint(gpus)
    return pool.replica_capacity(footprint), pool.capacity_after_growth(footprint)


class TestOtherRequests:
    def test_pods_of_the_asking_owner_leave_their_cpu_to_it(self) -> None:
        mine, other = ("chat", "mine"), ("chat", "other")
        fleet = fleet_of(nvidia_node("h"))  # with 191 CPUs
        fleet.put_pod(pod_with_cpu("p", "h", 6, mine, 100_000))
        fleet.put_pod(pod_with_cpu("q", "h", 2, other, 90_000))
        own = by_name(fleet, excluding=mine)[H100_POOL]
        assert own.replica_capacity(Footprint(1), Resources(16_000)) == 6
        assert own.replica_capacity(Footprint(1), Resources(26_000)) == 3
        assert own.replica_capacity(Footprint(1), Resources(102_000)) == 0
        (node,) = own.nodes
        assert (node.size.cpu, node.spare.cpu) == (191_000, 101_000)

    def test_a_node_that_shrinks_has_less_for_replicas(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        assert by_name(fleet)[H100_POOL].replica_capacity(Footprint(1), Resources(20_000)) == 8
        fleet.put_node(replace(read_node(nvidia_node("h")), size=Resources(50_000, 0, 0)))
        assert by_name(fleet)[H100_POOL].replica_capacity(Footprint(1), Resources(20_000)) == 2
        assert by_name(fleet)[H100_POOL].replica_capacity(Footprint(1), Resources(0, 1, 0)) == 0


class TestEvents:
    def test_a_pool_is_the_same_object_until_it_changes(self) -> None:
        fleet = fleet_of(nvidia_node("h"), amd_node("m"))
        before = by_name(fleet)
        fleet.put_pod(pod("p", "h", 3))
        after = by_name(fleet)
        assert after[MI300X_POOL] is before[MI300X_POOL]
        assert after[H100_POOL] is not before[H100_POOL]
        assert after[H100_POOL].free == 5

    def test_an_irrelevant_label_changes_nothing(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        before = by_name(fleet)
        fleet.put_node(read_node(nvidia_node("h", H100 | {"example.com/rack": "7"})))
        fleet.put_node(read_node(nvidia_node("h", H100 | {"nvidia.com/gfd.timestamp": "1"})))
        assert by_name(fleet)[H100_POOL] is before[H100_POOL]

    def test_a_returned_pool_never_changes(self) -> None:
        fleet = fleet_of(nvidia_node("a"), nvidia_node("b"))
        before = by_name(fleet)[H100_POOL]
        fleet.put_pod(pod("p", "a", 8))
        fleet.remove_node("b")
        fleet.pools()
        assert free(before) == {"a": 8, "b": 8}
        assert before.free == 16
        assert free(by_name(fleet)[H100_POOL]) == {"a": 0}

    def test_a_pod_may_be_added_before_its_node(self) -> None:
        fleet = Fleet(CATALOG)
        fleet.put_pod(pod("p", "h", 3))
        fleet.put_node(read_node(nvidia_node("h")))
        assert by_name(fleet)[H100_POOL].free == 5

    def test_a_node_that_comes_back_still_has_its_pods(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        fleet.put_pod(pod("p", "h", 3))
        fleet.remove_node("h")
        assert fleet.pools() == ()
        fleet.put_node(read_node(nvidia_node("h")))
        assert by_name(fleet)[H100_POOL].free == 5

    def test_a_node_whose_cards_change_goes_to_another_pool(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        fleet.pools()
        fleet.put_node(read_node(nvidia_node("h", L40S, gpus=4)))
        assert list(by_name(fleet)) == ["nvidia-l40s"]
        assert fleet.pool_of("h") == "nvidia-l40s"

    def test_removing_unknown_objects_changes_nothing(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        fleet.remove_node("unknown")
        fleet.remove_pod("unknown")
        fleet.withdraw("unknown")
        assert fleet.pool_of("unknown") is None
        assert list(by_name(fleet)) == [H100_POOL]

    def test_replicas_that_are_scheduled_are_not_counted_twice(self) -> None:
        fleet = fleet_of(nvidia_node("a"), nvidia_node("b"))
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, Footprint(4), 2)])
        assert by_name(fleet)[H100_POOL].free == 8
        fleet.put_pod(pod("p", "a", 4, LLAMA))
        assert by_name(fleet)[H100_POOL].free == 8
        fleet.put_pod(pod("q", "b", 4, LLAMA))
        assert free(by_name(fleet)[H100_POOL]) == {"a": 4, "b": 4}
        assert by_name(fleet, excluding=LLAMA)[H100_POOL].free == 16

    def test_a_replica_whose_node_changes_pools_is_unscheduled_again(self) -> None:
        fleet = fleet_of(nvidia_node("a"), nvidia_node("b"), nvidia_node("l", L40S))
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, Footprint(4), 1)])
        fleet.put_pod(pod("p", "a", 4, LLAMA))
        assert free(by_name(fleet)[H100_POOL]) == {"a": 4, "b": 8}
        fleet.put_node(read_node(nvidia_node("a", L40S)))
        assert free(by_name(fleet)[H100_POOL]) == {"b": 4}

    def test_only_the_pools_of_an_excluded_owner_differ(self) -> None:
        fleet = fleet_of(nvidia_node("h"), amd_node("m"))
        fleet.put_pod(pod("p", "h", 4, LLAMA))
        shared, without = by_name(fleet), by_name(fleet, excluding=LLAMA)
        assert without[MI300X_POOL] is shared[MI300X_POOL]
        assert without[H100_POOL].free == 8

    def test_a_pool_for_tolerations_is_the_same_object_too(self) -> None:
        taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
        fleet = fleet_of(nvidia_node("h"), nvidia_node("t", taints=[taint]), amd_node("m"))
        tolerations = (Toleration(key="dedicated", operator="Exists"),)
        shared, tolerant = by_name(fleet), by_name(fleet, tolerations=tolerations)
        assert (shared[H100_POOL].free, tolerant[H100_POOL].free) == (8, 16)
        assert tolerant[MI300X_POOL] is shared[MI300X_POOL]
        assert by_name(fleet, tolerations=tolerations)[H100_POOL] is tolerant[H100_POOL]
        useless = (Toleration(key="another", operator="Exists"),)
        assert by_name(fleet, tolerations=useless)[H100_POOL] is shared[H100_POOL]
        fleet.put_pod(pod("p", "t", 3))
        assert by_name(fleet, tolerations=tolerations)[H100_POOL].free == 13


class TestNames:
    NODES = (
        nvidia_node("a"),
        nvidia_node("b", {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}),
        amd_node("c"),
        amd_node("d", MI300X | {"amd.com/gpu.device-id": "74b5"}),
        nvidia_node("e", nvidia_labels("NVIDIA-L40S-SHARED", 46068), gpus=32),
    )

    @pytest.mark.parametrize("order", list(permutations(range(5)))[::17])
    def test_they_do_not_depend_on_the_order_of_events(self, order: tuple[int, ...]) -> None:
        fleet = Fleet(CATALOG)
        for number in order:
            fleet.put_node(read_node(self.NODES[number]))
            fleet.pools()
        assert {node: fleet.pool_of(node) for node in "abcde"} == {
            "a": H100_POOL,
            "b": f"{H100_POOL}-gke-accelerator",
            "c": MI300X_POOL,
            "d": f"{MI300X_POOL}-vf",
            "e": "nvidia-unrecognised",
        }

    def test_a_pool_has_the_plain_name_until_a_better_labelled_one_appears(self) -> None:
        fleet = fleet_of(self.NODES[1])
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, Footprint(8), 1)])
        assert by_name(fleet)[H100_POOL].free == 0
        fleet.put_node(read_node(self.NODES[0]))
        free_gpus = {name: pool.free for name, pool in by_name(fleet).items()}
        assert free_gpus == {H100_POOL: 0, f"{H100_POOL}-gke-accelerator": 8}
        fleet.remove_node("a")
        assert {name: pool.free for name, pool in by_name(fleet).items()} == {H100_POOL: 0}

    def test_replicas_in_a_renamed_pool_are_unscheduled_again(self) -> None:
        fleet = fleet_of(self.NODES[1])
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, Footprint(8), 1)])
        fleet.put_pod(pod("p", "b", 8, LLAMA))
        fleet.pools()
        fleet.put_node(read_node(self.NODES[0]))
        assert by_name(fleet)[H100_POOL].free == 0

    def test_a_declared_pool_takes_a_name_until_it_is_withdrawn(self) -> None:
        fleet = fleet_of(amd_node("a"))
        fleet.declare(declare(MI300X_POOL, {"no-node": "has-this"}))
        assert fleet.pool_of("a") == f"{MI300X_POOL}-2"
        fleet.withdraw(MI300X_POOL)
        assert fleet.pool_of("a") == MI300X_POOL


class TestDeclaredPools:
    def test_a_later_one_takes_its_nodes_until_it_is_withdrawn(self) -> None:
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}), nvidia_node("b"))
        assert by_name(fleet)[H100_POOL].total == 16
        fleet.declare(declare("chat", {"team": "chat"}))
        assert [fleet.pool_of(node) for node in "ab"] == ["chat", H100_POOL]
        assert by_name(fleet)[H100_POOL].node_exclusion == {"team": ("chat",), **OF_NO_SHARD}
        fleet.withdraw("chat")
        assert by_name(fleet)[H100_POOL].total == 16
        assert by_name(fleet)[H100_POOL].node_exclusion == OF_NO_SHARD

    def test_declared_ones_come_first_whenever_they_are_declared(self) -> None:
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}), nvidia_node("b"), amd_node("m"))
        fleet.pools()
        fleet.declare(declare("chat", {"team": "chat"}))
        assert [pool.name for pool in fleet.pools()] == ["chat", MI300X_POOL, H100_POOL]
        fleet.put_node(read_node(nvidia_node("l", L40S, gpus=4)))
        names = [pool.name for pool in fleet.pools(excluding=LLAMA)]
        assert names == ["chat", MI300X_POOL, H100_POOL, "nvidia-l40s"]

    def test_another_price_changes_no_other_pool(self) -> None:
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}), amd_node("m"))
        fleet.declare(declare("chat", {"team": "chat"}, costPerGPUHour="2.00"))
        before = by_name(fleet)
        fleet.declare(declare("chat", {"team": "chat"}, costPerGPUHour="3.00"))
        after = by_name(fleet)
        assert after[MI300X_POOL] is before[MI300X_POOL]
        spec = after["chat"].declared
        assert spec is not None
        assert spec.cost_per_gpu_hour == "3.00"

    def test_changed_tolerations_take_effect(self) -> None:
        taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}, taints=[taint]))
        fleet.declare(declare("chat", {"team": "chat"}))
        assert by_name(fleet)["chat"].free == 0
        tolerations = (Toleration(key="dedicated", operator="Exists"),)
        assert by_name(fleet, tolerations=tolerations)["chat"].free == 8
        tolerated = [{"key": "dedicated", "operator": "Exists"}]
        fleet.declare(declare("chat", {"team": "chat"}, tolerations=tolerated))
        assert by_name(fleet)["chat"].free == 8

    def test_a_mistake_in_one_pool_affects_no_other(self) -> None:
        fleet = fleet_of(
            nvidia_node("a", H100 | {"team": "mixed"}),
            amd_node("b", MI300X | {"team": "mixed"}),
            amd_node("c", MI300X | {"team": "misspelt"}),
            amd_node("d"),
            declared=(
                declare("mixed", {"team": "mixed"}),
                declare("misspelt", {"team": "misspelt"}, accelerator="mi300"),
            ),
        )
        pools = by_name(fleet)
        assert "selects different GPUs" in (pools["mixed"].unrecognised or "")
        assert "did you mean: mi300x" in (pools["misspelt"].unrecognised or "")
        assert pools[MI300X_POOL].free == 8

    def test_a_problem_is_reported_with_the_current_node_counts(self) -> None:
        fleet = fleet_of(
            nvidia_node("a", H100 | {"team": "mixed"}),
            amd_node("b", MI300X | {"team": "mixed"}),
            declared=(declare("mixed", {"team": "mixed"}),),
        )
        reason = "h100-sxm-80gb as nvidia.com/gpu on {} nodes"
        assert reason.format(1) in (by_name(fleet)["mixed"].unrecognised or "")
        fleet.put_node(read_node(nvidia_node("c", H100 | {"team": "mixed"})))
        assert reason.format(2) in (by_name(fleet)["mixed"].unrecognised or "")

    @pytest.mark.parametrize("pools_between", [False, True])
    def test_a_newly_relevant_label_is_read_on_earlier_nodes(self, pools_between: bool) -> None:
        gke = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
        fleet = fleet_of(
            nvidia_node("a", H100 | gke | {"team": "chat"}),
            declared=(declare("chat", {"team": "chat"}),),
        )
        if pools_between:
            fleet.pools()
        fleet.put_node(read_node(nvidia_node("b", gke)))
        assert by_name(fleet)[H100_POOL].node_exclusion["team"] == ("chat",)

    def test_overlapping_pools_both_report_it(self) -> None:
        labels = H100 | {"x": "1", "y": "1"}
        fleet = fleet_of(
            nvidia_node("a", labels),
            nvidia_node("b", H100 | {"y": "1"}),
            declared=(declare("second", {"y": "1"}), declare("first", {"x": "1"})),
        )
        pools = by_name(fleet)
        assert (pools["first"].overlaps, pools["first"].overlapped) == ((), ("second",))
        assert (pools["second"].overlaps, pools["second"].overlapped) == (("first",), ())
        assert "has nodes that second selects too" in pool_readiness(pools["first"]).message
        assert "first, first by name, has nodes" in pool_readiness(pools["second"]).message
        fleet.remove_node("a")
        assert by_name(fleet)["first"].overlapped == ()
        assert by_name(fleet)["second"].overlaps == ()


class TestGrowth:
    def test_only_nodes_that_do_not_exist_yet_are_to_come(self) -> None:
        nodes = [nvidia_node(name, H100 | {"team": "chat"}) for name in "abc"]
        fleet = fleet_of(*nodes[:1], declared=(declare("chat", {"team": "chat"}, maxNodes=2),))
        pool = by_name(fleet)["chat"]
        assert (pool.growth, pool.largest_node, pool.capacity_after_growth(Footprint(4))) == (
            1,
            8,
            4,
        )
        fleet.put_node(read_node(nodes[1]))
        fleet.put_node(read_node(nodes[2]))
        assert by_name(fleet)["chat"].growth == 0

    def test_a_node_to_come_is_reserved_once(self) -> None:
        nodes = [nvidia_node("a", H100 | {"team": "chat"})]
        fleet = fleet_of(*nodes, declared=(declare("chat", {"team": "chat"}, maxNodes=3),))
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100-sxm-80gb", "chat", Footprint(8), 2)])
        pool = by_name(fleet)["chat"]
        assert capacities(pool, 4) == (
            0,
            2,
        )
        own = by_name(fleet, excluding=LLAMA)["chat"]
        assert capacities(own, 4) == (
            2,
            6,
        )

    @pytest.mark.parametrize("replaced", [0, 8], ids=["next to a rollout", "alone"])
    def test_a_replica_on_an_existing_node_and_one_to_come_counts_once(self, replaced: int) -> None:
        other, labels = ("chat", "other"), H100 | {"team": "chat"}
        fleet = fleet_of(
            nvidia_node("a", labels),
            nvidia_node("b", labels),
            declared=(declare("chat", {"team": "chat"}, maxNodes=3),),
        )
        fleet.put_pod(pod("p", "b", 8, other))
        fleet.reserve(other, [Reservation(other, "h100", "chat", Footprint(replaced or 4), 1)])
        footprint = Footprint(8, 2)
        assert by_name(fleet)["chat"].capacity_after_growth(footprint) == 1
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100-2nodes", "chat", footprint, 1)])
        assert by_name(fleet)["chat"].capacity_after_growth(footprint) == 0
        assert free(by_name(fleet)["chat"]) == {"a": 0, "b": 0}

    def test_the_first_node_of_a_pool_has_the_gpus_of_the_catalogue(self) -> None:
        selector = {"team": "chat"}
        declared = declare("chat", selector, accelerator="h100-sxm-80gb", maxNodes=3)
        pool = by_name(fleet_of(declared=(declared,)))["chat"]
        assert (pool.total, pool.largest_node, pool.growth) == (0, 8, 3)
        assert capacities(pool, 4) == (
            0,
            6,
        )
        assert "up to 3 nodes with 8 GPUs may come" in pool_readiness(pool).message

    def test_nodes_to_come_have_no_size_without_nodes_or_accelerator(self) -> None:
        declared = declare("chat", {"team": "chat"}, maxNodes=3)
        pool = by_name(fleet_of(declared=(declared,)))["chat"]
        assert (pool.largest_node, pool.capacity_after_growth(Footprint(1))) == (0, 0)
        message = pool_readiness(pool).message
        assert "set spec.accelerator of AcceleratorPool chat" in message
        assert "the GPUs of the 3 nodes that may come are not known" in message

    def test_an_unknown_accelerator_is_reported_before_any_node_exists(self) -> None:
        declared = declare("chat", {"team": "chat"}, accelerator="h1000", maxNodes=3)
        message = pool_readiness(by_name(fleet_of(declared=(declared,)))["chat"]).message
        assert "spec.accelerator of AcceleratorPool chat" in message
        assert "h1000" in message

    def test_a_node_that_is_starting_counts_as_one_to_come(self) -> None:
        selector = {"team": "chat"}
        declared = declare("chat", selector, accelerator="h100-sxm-80gb", maxNodes=2)
        fleet = fleet_of(raw_node("a", selector, {}), declared=(declared,))
        pool = by_name(fleet)["chat"]
        assert (pool.growth, pool.largest_node, pool.capacity_after_growth(Footprint(4))) == (
            1,
            8,
            4,
        )
        assert [node.starting for node in pool.nodes] == [True]
        fleet.put_node(read_node(nvidia_node("a", H100 | selector)))
        pool = by_name(fleet)["chat"]
        assert capacities(pool, 4) == (
            2,
            4,
        )

    def test_a_starting_node_is_as_large_as_it_says_or_as_the_largest(self) -> None:
        selector = {"team": "chat"}
        labels = {**H100, **selector}
        fleet = fleet_of(
            nvidia_node("a", labels, gpus=4),
            nvidia_node("b", labels, gpus=2, ready="False"),
            raw_node("c", selector, {}),
            declared=(declare("chat", selector, accelerator="h100-sxm-80gb", maxNodes=3),),
        )
        assert by_name(fleet)["chat"].nodes.counts.to_come == ((2, 1), (4, 1))

    NOT_TO_COME: ClassVar = {
        "silent": (nvidia_node("a", H100 | {"team": "chat"}, ready="Unknown"), ()),
        "cordoned": (raw_node("a", {"team": "chat"}, {}, cordoned=True), ()),
        "with pods": (raw_node("a", {"team": "chat"}, {}), (pod("p", "a", 8),)),
        "of another card": (nvidia_node("a", L40S | {"team": "chat"}, ready="False"), ()),
    }

    @pytest.mark.parametrize(("node", "pods"), NOT_TO_COME.values(), ids=NOT_TO_COME)
    def test_a_node_that_may_never_be_capacity_is_not_to_come(
        self, node: Raw, pods: tuple[GpuPod, ...]
    ) -> None:
        declared = declare("chat", {"team": "chat"}, accelerator="h100-sxm-80gb", maxNodes=1)
        fleet = fleet_of(node, declared=(declared,))
        for one in pods:
            fleet.put_pod(one)
        assert by_name(fleet)["chat"].capacity_after_growth(Footprint(1)) == 0

    def test_a_pool_that_may_not_grow_has_no_nodes_to_come(self) -> None:
        declared = declare("chat", {"team": "chat"}, accelerator="h100-sxm-80gb")
        pool = by_name(fleet_of(raw_node("a", {"team": "chat"}, {}), declared=(declared,)))["chat"]
        assert (pool.largest_node, pool.capacity_after_growth(Footprint(1))) == (0, 0)


def test_a_snapshot_has_everything_that_the_fleet_was_given() -> None:
    nodes = [read_node(nvidia_node(name)) for name in "ab"]
    pods = [pod("p", "a", 1), pod("q", "b", 2, LLAMA)]
    pool = declare("chat", {"team": "chat"})
    reservations = (Reservation(LLAMA, "h100", H100_POOL, Footprint(4), 2),)
    fleet = Fleet(CATALOG)
    for node in reversed(nodes):
        fleet.put_node(node)
    for one in reversed(pods):
        fleet.put_pod(one)
    fleet.declare(pool)
    fleet.reserve(LLAMA, reservations)
    snapshot = fleet.snapshot()
    assert (snapshot.nodes, snapshot.pods) == (tuple(nodes), tuple(pods))
    assert (snapshot.declared_pools, snapshot.reservations) == ((pool,), reservations)
    assert (fleet.owners(), fleet.reserved(LLAMA)) == ({LLAMA}, reservations)
    assert Fleet.of(snapshot, CATALOG).pools() == fleet.pools()
