"""The fleet, event by event: what changes, what stays the very same object, and what is said."""

from itertools import permutations
from typing import Any

import pytest

from tests.support.gpu_nodes import H100, L40S, MI300X, Raw, amd_node, nvidia_labels, nvidia_node
from tonnage.api.names import LABEL_SHARD
from tonnage.api.pod import Toleration
from tonnage.catalog.load import load_catalog
from tonnage.fleet.declared import read_declared_pool
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, GpuPod, Pool, Reservation
from tonnage.fleet.node import read_node
from tonnage.fleet.report import pool_readiness

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


def by_name(fleet: Fleet, **asked: Any) -> dict[str, Pool]:
    return {pool.name: pool for pool in fleet.pools(**asked)}


def declare(name: str, selector: dict[str, str], **spec: Any) -> DeclaredPool:
    pool = read_declared_pool(
        {"metadata": {"name": name}, "spec": {"nodeSelector": selector, **spec}}
    )
    assert pool is not None
    return pool


def pod(uid: str, node: str, gpus: int, owner: tuple[str, str] | None = None) -> GpuPod:
    return GpuPod(uid, node, {"nvidia.com/gpu": gpus}, owner, "h100" if owner else None)


def free(pool: Pool) -> dict[str, int]:
    return {node.name: node.free for node in pool.nodes}


class TestEvents:
    def test_a_pool_is_the_very_same_object_until_something_of_it_changes(self) -> None:
        fleet = fleet_of(nvidia_node("h"), amd_node("m"))
        before = by_name(fleet)
        fleet.put_pod(pod("p", "h", 3))
        after = by_name(fleet)
        assert after[MI300X_POOL] is before[MI300X_POOL]
        assert after[H100_POOL] is not before[H100_POOL]
        assert after[H100_POOL].free == 5

    def test_a_label_that_nobody_looks_at_changes_nothing(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        before = by_name(fleet)
        fleet.put_node(read_node(nvidia_node("h", H100 | {"example.com/rack": "7"})))
        fleet.put_node(read_node(nvidia_node("h", H100 | {"nvidia.com/gfd.timestamp": "1"})))
        assert by_name(fleet)[H100_POOL] is before[H100_POOL]

    def test_a_pool_that_was_handed_out_stays_as_it_was(self) -> None:
        fleet = fleet_of(nvidia_node("a"), nvidia_node("b"))
        before = by_name(fleet)[H100_POOL]
        fleet.put_pod(pod("p", "a", 8))
        fleet.remove_node("b")
        fleet.pools()
        assert free(before) == {"a": 8, "b": 8}
        assert before.free == 16
        assert free(by_name(fleet)[H100_POOL]) == {"a": 0}

    def test_a_pod_may_be_told_before_its_node(self) -> None:
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

    def test_what_is_unknown_is_forgotten_without_a_word(self) -> None:
        fleet = fleet_of(nvidia_node("h"))
        fleet.remove_node("nobody")
        fleet.remove_pod("nobody")
        fleet.withdraw("nobody")
        assert fleet.pool_of("nobody") is None
        assert list(by_name(fleet)) == [H100_POOL]

    def test_replicas_that_are_scheduled_are_not_counted_twice(self) -> None:
        fleet = fleet_of(nvidia_node("a"), nvidia_node("b"))
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, 4, 2)])
        assert by_name(fleet)[H100_POOL].free == 8
        fleet.put_pod(pod("p", "a", 4, LLAMA))
        assert by_name(fleet)[H100_POOL].free == 8
        fleet.put_pod(pod("q", "b", 4, LLAMA))
        assert free(by_name(fleet)[H100_POOL]) == {"a": 4, "b": 4}
        assert by_name(fleet, excluding=LLAMA)[H100_POOL].free == 16

    def test_a_replica_whose_node_goes_to_another_pool_needs_a_place_again(self) -> None:
        fleet = fleet_of(nvidia_node("a"), nvidia_node("b"), nvidia_node("l", L40S))
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, 4, 1)])
        fleet.put_pod(pod("p", "a", 4, LLAMA))
        assert free(by_name(fleet)[H100_POOL]) == {"a": 4, "b": 8}
        fleet.put_node(read_node(nvidia_node("a", L40S)))
        assert free(by_name(fleet)[H100_POOL]) == {"b": 4}

    def test_only_the_pools_of_an_owner_differ_without_it(self) -> None:
        fleet = fleet_of(nvidia_node("h"), amd_node("m"))
        fleet.put_pod(pod("p", "h", 4, LLAMA))
        everybody, without = by_name(fleet), by_name(fleet, excluding=LLAMA)
        assert without[MI300X_POOL] is everybody[MI300X_POOL]
        assert without[H100_POOL].free == 8

    def test_what_a_toleration_opens_is_the_same_object_too(self) -> None:
        taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
        fleet = fleet_of(nvidia_node("h"), nvidia_node("t", taints=[taint]), amd_node("m"))
        tolerations = (Toleration(key="dedicated", operator="Exists"),)
        everybody, tolerant = by_name(fleet), by_name(fleet, tolerations=tolerations)
        assert (everybody[H100_POOL].free, tolerant[H100_POOL].free) == (8, 16)
        assert tolerant[MI300X_POOL] is everybody[MI300X_POOL]
        assert by_name(fleet, tolerations=tolerations)[H100_POOL] is tolerant[H100_POOL]
        useless = (Toleration(key="another", operator="Exists"),)
        assert by_name(fleet, tolerations=useless)[H100_POOL] is everybody[H100_POOL]
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
    def test_they_do_not_depend_on_who_came_first(self, order: tuple[int, ...]) -> None:
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

    def test_a_pool_has_the_plain_name_while_there_is_no_better_one(self) -> None:
        fleet = fleet_of(self.NODES[1])
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, 8, 1)])
        assert by_name(fleet)[H100_POOL].free == 0
        fleet.put_node(read_node(self.NODES[0]))
        found = {name: pool.free for name, pool in by_name(fleet).items()}
        assert found == {H100_POOL: 0, f"{H100_POOL}-gke-accelerator": 8}
        fleet.remove_node("a")
        assert {name: pool.free for name, pool in by_name(fleet).items()} == {H100_POOL: 0}

    def test_replicas_in_a_pool_that_is_called_otherwise_by_now_need_a_place_again(self) -> None:
        fleet = fleet_of(self.NODES[1])
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100", H100_POOL, 8, 1)])
        fleet.put_pod(pod("p", "b", 8, LLAMA))
        fleet.pools()
        fleet.put_node(read_node(self.NODES[0]))
        assert by_name(fleet)[H100_POOL].free == 0

    def test_a_declared_pool_takes_a_name_and_gives_it_back(self) -> None:
        fleet = fleet_of(amd_node("a"))
        fleet.declare(declare(MI300X_POOL, {"nobody": "has-this"}))
        assert fleet.pool_of("a") == f"{MI300X_POOL}-2"
        fleet.withdraw(MI300X_POOL)
        assert fleet.pool_of("a") == MI300X_POOL


class TestDeclaredPools:
    def test_one_that_comes_later_takes_its_nodes_and_gives_them_back(self) -> None:
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}), nvidia_node("b"))
        assert by_name(fleet)[H100_POOL].total == 16
        fleet.declare(declare("chat", {"team": "chat"}))
        assert [fleet.pool_of(node) for node in "ab"] == ["chat", H100_POOL]
        assert by_name(fleet)[H100_POOL].node_exclusion == {"team": ("chat",), **OF_NO_SHARD}
        fleet.withdraw("chat")
        assert by_name(fleet)[H100_POOL].total == 16
        assert by_name(fleet)[H100_POOL].node_exclusion == OF_NO_SHARD

    def test_another_price_leaves_all_other_pools_alone(self) -> None:
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}), amd_node("m"))
        fleet.declare(declare("chat", {"team": "chat"}, costPerGPUHour="2.00"))
        before = by_name(fleet)
        fleet.declare(declare("chat", {"team": "chat"}, costPerGPUHour="3.00"))
        after = by_name(fleet)
        assert after[MI300X_POOL] is before[MI300X_POOL]
        spec = after["chat"].declared
        assert spec is not None
        assert spec.cost_per_gpu_hour == "3.00"

    def test_other_tolerations_are_followed(self) -> None:
        taint = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
        fleet = fleet_of(nvidia_node("a", H100 | {"team": "chat"}, taints=[taint]))
        fleet.declare(declare("chat", {"team": "chat"}))
        assert by_name(fleet)["chat"].free == 0
        tolerations = (Toleration(key="dedicated", operator="Exists"),)
        assert by_name(fleet, tolerations=tolerations)["chat"].free == 8
        tolerated = [{"key": "dedicated", "operator": "Exists"}]
        fleet.declare(declare("chat", {"team": "chat"}, tolerations=tolerated))
        assert by_name(fleet)["chat"].free == 8

    def test_what_is_wrong_with_one_pool_is_its_own_problem(self) -> None:
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

    def test_a_problem_is_told_with_the_nodes_there_are_now(self) -> None:
        fleet = fleet_of(
            nvidia_node("a", H100 | {"team": "mixed"}),
            amd_node("b", MI300X | {"team": "mixed"}),
            declared=(declare("mixed", {"team": "mixed"}),),
        )
        told = "h100-sxm-80gb as nvidia.com/gpu on {} nodes"
        assert told.format(1) in (by_name(fleet)["mixed"].unrecognised or "")
        fleet.put_node(read_node(nvidia_node("c", H100 | {"team": "mixed"})))
        assert told.format(2) in (by_name(fleet)["mixed"].unrecognised or "")

    @pytest.mark.parametrize("asked_between", [False, True])
    def test_a_label_that_later_tells_other_cards_is_looked_for_on_nodes_before(
        self, asked_between: bool
    ) -> None:
        gke = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
        fleet = fleet_of(
            nvidia_node("a", H100 | gke | {"team": "chat"}),
            declared=(declare("chat", {"team": "chat"}),),
        )
        if asked_between:
            fleet.pools()
        fleet.put_node(read_node(nvidia_node("b", gke)))
        assert by_name(fleet)[H100_POOL].node_exclusion["team"] == ("chat",)

    def test_of_pools_that_overlap_both_say_so(self) -> None:
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
    def test_nodes_to_come_are_those_that_are_not_there_yet(self) -> None:
        nodes = [nvidia_node(name, H100 | {"team": "chat"}) for name in "abc"]
        fleet = fleet_of(*nodes[:1], declared=(declare("chat", {"team": "chat"}, maxNodes=2),))
        pool = by_name(fleet)["chat"]
        assert (pool.growth, pool.largest_node, pool.room_after_growth(4)) == (1, 8, 4)
        fleet.put_node(read_node(nodes[1]))
        fleet.put_node(read_node(nodes[2]))
        assert by_name(fleet)["chat"].growth == 0

    def test_a_node_to_come_is_promised_once(self) -> None:
        nodes = [nvidia_node("a", H100 | {"team": "chat"})]
        fleet = fleet_of(*nodes, declared=(declare("chat", {"team": "chat"}, maxNodes=3),))
        fleet.reserve(LLAMA, [Reservation(LLAMA, "h100-sxm-80gb", "chat", 8, 2)])
        pool = by_name(fleet)["chat"]
        assert (pool.room_for(4), pool.room_after_growth(4)) == (0, 2)
        mine = next(found for found in fleet.pools(excluding=LLAMA) if found.name == "chat")
        assert (mine.room_for(4), mine.room_after_growth(4)) == (2, 6)

    def test_the_first_node_of_a_pool_will_have_what_the_catalogue_says(self) -> None:
        selector = {"team": "chat"}
        declared = declare("chat", selector, accelerator="h100-sxm-80gb", maxNodes=3)
        pool = by_name(fleet_of(declared=(declared,)))["chat"]
        assert (pool.total, pool.largest_node, pool.growth) == (0, 8, 3)
        assert (pool.room_for(4), pool.room_after_growth(4)) == (0, 6)
        assert "up to 3 nodes with 8 GPUs may come" in pool_readiness(pool).message

    def test_nobody_knows_the_nodes_of_a_pool_without_any_and_without_an_accelerator(self) -> None:
        declared = declare("chat", {"team": "chat"}, maxNodes=3)
        pool = by_name(fleet_of(declared=(declared,)))["chat"]
        assert (pool.largest_node, pool.room_after_growth(1)) == (0, 0)
        assert "the size of the up to 3 nodes to come is not known" in pool_readiness(pool).message


def test_a_fleet_tells_what_it_was_told() -> None:
    nodes = [read_node(nvidia_node(name)) for name in "ab"]
    pods = [pod("p", "a", 1), pod("q", "b", 2, LLAMA)]
    pool = declare("chat", {"team": "chat"})
    reservations = (Reservation(LLAMA, "h100", H100_POOL, 4, 2),)
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
