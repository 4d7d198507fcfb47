"""The fleet state: which events change it, and which callbacks each change calls."""

from datetime import UTC, datetime

import pytest

from tests.support.fleets.dra_objects import MI300X, dra_node, gpu_slice
from tests.support.fleets.objects import node, pod, pool
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.catalog.dra_drivers import load_dra_drivers
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.dra.read import read_slice
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.protocol import Object
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.priority import Precedence

CATALOG = load_catalog()
LLAMA, GEMMA = Key("chat", "llama"), Key("chat", "gemma")


class Notifications:
    """Counts the callbacks of the fleet state."""

    def __init__(self) -> None:
        self.changes = 0
        self.capacity_freed = 0
        self.losers: list[Key] = []
        self.fleet = FleetState(
            Fleet(CATALOG), self._change, self._free_capacity, self.losers.append
        )

    def node(self, before: Object | None, after: Object | None) -> None:
        """Change the store's node."""
        (name,) = {body["metadata"]["name"] for body in (before, after) if body is not None}
        nodes = (None if body is None else read_node(body) for body in (before, after))
        self.fleet.change_node(name, *nodes)

    def pod(self, before: Object | None, after: Object | None) -> None:
        """Change the store's pod."""
        self.fleet.change_pod(*(body and read_gpu_pod(body) for body in (before, after)))

    def slice(self, before: Object | None, after: Object | None) -> None:
        """Change the store's ResourceSlice."""
        slices = (None if body is None else read_slice(body) for body in (before, after))
        self.fleet.change_slice(*slices)
        self.fleet.view().pools()

    def _change(self) -> None:
        self.changes += 1

    def _free_capacity(self) -> None:
        self.capacity_freed += 1


@pytest.fixture
def notifications() -> Notifications:
    return Notifications()


def reservation(key: Key, replicas: int = 2, placement: str = "amd") -> Reservation:
    return Reservation((key.namespace, key.name), placement, "amd", Footprint(4), replicas)


def waiting(key: Key, day: int, priority: int = 0) -> Precedence:
    return Precedence(priority, datetime(2026, 1, day, tzinfo=UTC), key)


def test_view_follows_every_change(notifications: Notifications) -> None:
    view = notifications.fleet.view()
    notifications.node(None, node())
    assert [pool.total for pool in view.pools()] == [8]
    notifications.pod(None, pod())
    assert [pool.nodes.counts.nodes for pool in view.pools()] == [1]
    notifications.node(node(), None)
    assert view.pools() == ()


def test_only_gpus_that_a_slice_lists_no_more_are_lost(notifications: Notifications) -> None:
    """Its driver writes all slices of a pool again at each change, in a new generation."""
    name = "amd-mi300x-dra"
    notifications.node(None, dra_node("n"))
    first, second, fewer = (
        gpu_slice("n", MI300X, gpus, generation=generation)
        for gpus, generation in ((8, 1), (8, 2), (7, 3))
    )
    notifications.slice(None, first)
    reserved = Reservation((LLAMA.namespace, LLAMA.name), "amd", name, Footprint(4), 1)
    notifications.fleet.reserve(LLAMA, [reserved])
    notifications.slice(first, second)
    assert notifications.losers == []
    notifications.slice(second, fewer)
    assert notifications.losers == [LLAMA]
    notifications.losers.clear()
    notifications.slice(fewer, None)
    assert notifications.losers == [LLAMA]
    assert notifications.fleet.view().pools() == ()


def test_gpus_whose_last_device_class_is_deleted_are_lost(notifications: Notifications) -> None:
    name = "amd-mi300x-dra"
    notifications.node(None, dra_node("n"))
    notifications.slice(None, gpu_slice("n", MI300X, 8))
    reserved = Reservation((LLAMA.namespace, LLAMA.name), "amd", name, Footprint(4), 1)
    notifications.fleet.reserve(LLAMA, [reserved])
    only = load_dra_drivers().by_name["gpu.amd.com"].device_class
    notifications.fleet.change_device_class(None, only)
    assert notifications.losers == []
    notifications.fleet.change_device_class(only, None)
    assert notifications.losers == [LLAMA]


def test_snapshot_is_in_order(notifications: Notifications) -> None:
    for name in ("c", "a", "b"):
        notifications.node(None, node(name, uid=name))
    snapshot = notifications.fleet.view().snapshot()
    assert [known.name for known in snapshot.nodes] == ["a", "b", "c"]


def test_a_heartbeat_of_a_node_changes_nothing(notifications: Notifications) -> None:
    notifications.node(None, node())
    beat = node()
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
    beat["status"]["images"] = [{"names": ["x"]}]
    beat["status"]["allocatable"]["pods"] = "95"
    notifications.node(node(), beat)
    assert (notifications.changes, notifications.capacity_freed, notifications.fleet.changes) == (
        1,
        1,
        1,
    )


CHANGES: dict[str, Object] = {
    "cordon": node(unschedulable=True),
    "taint": node(taints=[{"key": "k", "effect": "NoSchedule"}]),
    "fewer GPUs": node(gpus=7),
    "more GPUs": node(gpus=9),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_node_changes_the_fleet(notifications: Notifications, name: str) -> None:
    notifications.node(None, node())
    before = notifications.fleet.view().snapshot()
    notifications.node(node(), CHANGES[name])
    assert (notifications.changes, notifications.capacity_freed, notifications.fleet.changes) == (
        2,
        2,
        2,
    )
    assert notifications.fleet.view().snapshot() != before


def test_a_recreated_identical_node_changes_nothing(notifications: Notifications) -> None:
    notifications.node(None, node(uid="u1"))
    notifications.node(node(uid="u1"), node(uid="u2"))
    assert notifications.changes == 1


def test_a_deleted_node_leaves_the_fleet(notifications: Notifications) -> None:
    notifications.node(None, node())
    notifications.node(node(), None)
    assert notifications.fleet.view().snapshot().nodes == ()
    assert notifications.changes == 2


def test_a_pod_without_gpus_changes_nothing(notifications: Notifications) -> None:
    notifications.pod(None, pod(gpus=0))
    notifications.pod(pod(gpus=0), None)
    assert (notifications.fleet.view().snapshot().pods, notifications.changes) == ((), 0)


@pytest.mark.parametrize("after", [pod(phase="Succeeded"), pod(phase="Failed"), None])
def test_a_pod_that_ends_frees_its_gpus(notifications: Notifications, after: Object | None) -> None:
    notifications.pod(None, pod())
    notifications.pod(pod(), after)
    assert notifications.fleet.view().snapshot().pods == ()
    assert (notifications.changes, notifications.capacity_freed) == (2, 2)


def test_a_change_of_a_pod_that_keeps_its_gpus_changes_nothing(
    notifications: Notifications,
) -> None:
    notifications.pod(None, pod())
    changed = pod()
    changed["metadata"]["annotations"] = {"some": "news"}
    notifications.pod(pod(), changed)
    assert notifications.changes == 1


def test_a_pod_that_is_bound_holds_the_gpus_of_its_node(notifications: Notifications) -> None:
    notifications.pod(None, pod(node_name=None))
    notifications.pod(pod(node_name=None), pod())
    (held,) = notifications.fleet.view().snapshot().pods
    assert held.node == "gpu-1"


def test_a_recreated_pod_replaces_the_old_one(notifications: Notifications) -> None:
    notifications.pod(None, pod("old"))
    notifications.pod(pod("old"), pod("new"))
    assert [held.uid for held in notifications.fleet.view().snapshot().pods] == ["new"]
    assert notifications.changes == 2


def test_a_declared_pool_is_added_changed_and_removed(notifications: Notifications) -> None:
    assert notifications.fleet.change_pool("amd", pool())
    assert not notifications.fleet.change_pool("amd", pool(uid="u2"))
    assert notifications.fleet.change_pool("amd", pool(cost="3"))
    (declared,) = notifications.fleet.view().snapshot().declared_pools
    assert declared.name == "amd"
    assert notifications.fleet.change_pool("amd", None)
    assert notifications.fleet.view().snapshot().declared_pools == ()
    assert (notifications.changes, notifications.capacity_freed) == (3, 3)


def test_a_discovered_pool_is_not_declared(notifications: Notifications) -> None:
    assert not notifications.fleet.change_pool("amd", pool(**{"tonnage.dev/discovered": "true"}))
    assert notifications.fleet.view().snapshot().declared_pools == ()
    assert notifications.changes == 0


def test_a_pool_that_becomes_discovered_is_withdrawn(notifications: Notifications) -> None:
    notifications.fleet.change_pool("amd", pool())
    assert notifications.fleet.change_pool("amd", pool(**{"tonnage.dev/discovered": "true"}))
    assert notifications.fleet.view().snapshot().declared_pools == ()


def test_deleting_a_discovered_pool_is_a_change_so_that_it_is_created_again(
    notifications: Notifications,
) -> None:
    notifications.fleet.change_pool("amd", pool(**{"tonnage.dev/discovered": "true"}))
    assert not notifications.fleet.change_pool("amd", None)
    assert (notifications.changes, notifications.capacity_freed) == (1, 0)


def test_an_invalid_pool_is_ignored_and_logged(
    notifications: Notifications, caplog: pytest.LogCaptureFixture
) -> None:
    notifications.fleet.change_pool("amd", pool())
    assert notifications.fleet.change_pool("amd", pool(cost="a lot"))
    assert notifications.fleet.view().snapshot().declared_pools == ()
    assert "AcceleratorPool amd" in caplog.text


def test_growing_reservation_frees_no_capacity(notifications: Notifications) -> None:
    notifications.fleet.reserve(LLAMA, [reservation(LLAMA)])
    assert (notifications.changes, notifications.capacity_freed) == (1, 0)
    notifications.fleet.reserve(LLAMA, [reservation(LLAMA)])
    assert notifications.changes == 1


def test_smaller_reservation_frees_capacity(notifications: Notifications) -> None:
    notifications.fleet.reserve(LLAMA, [reservation(LLAMA, replicas=2)])
    notifications.fleet.reserve(LLAMA, [reservation(LLAMA, replicas=1)])
    assert notifications.capacity_freed == 1


def test_released_object_has_no_reservation_and_does_not_wait(notifications: Notifications) -> None:
    notifications.fleet.reserve(LLAMA, [reservation(LLAMA)])
    notifications.fleet.wait_for_capacity(waiting(LLAMA, 1))
    notifications.fleet.release(LLAMA)
    assert notifications.fleet.view().snapshot().reservations == ()
    assert notifications.fleet.known_keys() == set()
    assert notifications.capacity_freed == 1


def test_releasing_an_unknown_object_calls_nothing(notifications: Notifications) -> None:
    notifications.fleet.release(LLAMA)
    assert (notifications.changes, notifications.capacity_freed) == (0, 0)


def test_rebuilt_reservations_replace_all_others(notifications: Notifications) -> None:
    notifications.fleet.reserve(GEMMA, [reservation(GEMMA)])
    existing = [reservation(LLAMA, placement="amd"), reservation(LLAMA, placement="nvidia")]
    notifications.fleet.rebuild_reservations(existing)
    assert notifications.fleet.view().snapshot().reservations == tuple(existing)
    assert notifications.fleet.known_keys() == {LLAMA}


def test_oldest_object_is_first(notifications: Notifications) -> None:
    notifications.fleet.wait_for_capacity(waiting(LLAMA, 2))
    notifications.fleet.wait_for_capacity(waiting(GEMMA, 1))
    assert notifications.fleet.waiting_keys() == [GEMMA, LLAMA]
    notifications.fleet.stop_waiting(GEMMA)
    assert notifications.fleet.waiting_keys() == [LLAMA]


def test_higher_priority_is_before_the_oldest() -> None:
    fleet = Notifications().fleet
    fleet.wait_for_capacity(waiting(LLAMA, 1))
    fleet.wait_for_capacity(waiting(GEMMA, 2, priority=10))
    assert fleet.waiting_keys() == [GEMMA, LLAMA]


def test_claims_before_are_those_of_higher_precedence() -> None:
    fleet = Notifications().fleet
    fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    fleet.wait_for_capacity(waiting(GEMMA, 2), [reservation(GEMMA)])
    assert fleet.claims_before(waiting(LLAMA, 1)) == ()
    assert fleet.claims_before(waiting(GEMMA, 2)) == (reservation(LLAMA),)
    later = waiting(Key("chat", "qwen"), 3)
    assert fleet.claims_before(later) == (reservation(LLAMA), reservation(GEMMA))


def test_claims_that_end_free_capacity_for_later_objects(notifications: Notifications) -> None:
    notifications.fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    notifications.fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    assert notifications.capacity_freed == 0
    notifications.fleet.wait_for_capacity(waiting(LLAMA, 1))
    assert notifications.capacity_freed == 1
    notifications.fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    notifications.fleet.stop_waiting(LLAMA)
    assert notifications.capacity_freed == 2


def test_only_owners_of_replicas_on_a_node_lose_gpus_with_the_node(
    notifications: Notifications,
) -> None:
    notifications.node(None, node("a", "a"))
    notifications.node(None, node("b", "b"))
    for name, key in (("a", LLAMA), ("b", GEMMA)):
        held = pod(key.name, name, gpus=4)
        held["metadata"]["labels"] = {LABEL_OWNER: key.name, LABEL_PLACEMENT: "amd"}
        notifications.pod(None, held)
        notifications.fleet.reserve(key, [reservation(key, replicas=1)])
    notifications.fleet.view().pools()
    notifications.node(node("a", "a"), node("a", "a", unschedulable=True))
    assert notifications.losers == [LLAMA]
    notifications.node(node("b", "b"), None)
    assert notifications.losers == [LLAMA, GEMMA]
    notifications.node(node("a", "a", unschedulable=True), None)
    assert notifications.losers == [LLAMA, GEMMA, LLAMA]
