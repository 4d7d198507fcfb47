"""The cache of the fleet: what changes it, what does not, and whom it tells."""

from datetime import UTC, datetime

import pytest

from tests.support.fleet_objects import node, pod, pool, show
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.catalog.load import load_catalog
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.turn import Precedence
from tonnage.runtime.fleet_state import FleetState

CATALOG = load_catalog()
LLAMA, GEMMA = Key("chat", "llama"), Key("chat", "gemma")


class Told:
    """Counts what the fleet tells."""

    def __init__(self) -> None:
        self.changes = 0
        self.rooms = 0
        self.losers: list[Key] = []
        self.fleet = FleetState(CATALOG, self._change, self._room, self.losers.append)

    def _change(self) -> None:
        self.changes += 1

    def _room(self) -> None:
        self.rooms += 1


@pytest.fixture
def told() -> Told:
    return Told()


def reservation(key: Key, replicas: int = 2, placement: str = "amd") -> Reservation:
    return Reservation((key.namespace, key.name), placement, "amd", 4, replicas)


def waiting(key: Key, day: int, priority: int = 0) -> Precedence:
    return Precedence(priority, datetime(2026, 1, day, tzinfo=UTC), key)


def test_view_follows_every_event(told: Told) -> None:
    view = told.fleet.view()
    told.fleet.observe_node(node())
    assert [pool.total for pool in view.pools()] == [8]
    told.fleet.observe_pod(pod())
    assert [pool.nodes.counts.nodes for pool in view.pools()] == [1]
    told.fleet.forget_node(node())
    assert view.pools() == ()


def test_snapshot_is_in_order(told: Told) -> None:
    for name in ("c", "a", "b"):
        told.fleet.observe_node(node(name, uid=name))
    assert [each.name for each in told.fleet.view().snapshot().nodes] == ["a", "b", "c"]


def test_heartbeat_tells_nobody(told: Told) -> None:
    told.fleet.observe_node(node())
    beat = node()
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
    beat["status"]["images"] = [{"names": ["x"]}]
    beat["status"]["allocatable"]["cpu"] = "95"
    told.fleet.observe_node(beat)
    assert (told.changes, told.rooms) == (1, 1)


CHANGES: dict[str, Object] = {
    "cordon": node(unschedulable=True),
    "taint": node(taints=[{"key": "k", "effect": "NoSchedule"}]),
    "fewer GPUs": node(gpus=7),
    "made anew": node(uid="u2"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_change_of_a_node_is_told(told: Told, name: str) -> None:
    told.fleet.observe_node(node())
    before = told.fleet.view().snapshot()
    told.fleet.observe_node(CHANGES[name])
    assert told.changes == 2
    assert (told.fleet.view().snapshot() == before) == (name == "made anew")


def test_deleted_node_is_forgotten(told: Told) -> None:
    told.fleet.observe_node(node())
    told.fleet.forget_node(node())
    assert told.fleet.view().snapshot().nodes == ()


def test_late_deletion_does_not_forget_the_node_made_anew(told: Told) -> None:
    told.fleet.observe_node(node(uid="new"))
    told.fleet.forget_node(node(uid="old"))
    assert len(told.fleet.view().snapshot().nodes) == 1


def test_pod_without_gpus_is_not_kept(told: Told) -> None:
    told.fleet.observe_pod(pod(gpus=0))
    assert (told.fleet.view().snapshot().pods, told.changes) == ((), 0)


def test_finished_pod_gives_its_gpus_back(told: Told) -> None:
    told.fleet.observe_pod(pod())
    told.fleet.observe_pod(pod(phase="Succeeded"))
    assert told.fleet.view().snapshot().pods == ()
    assert told.rooms == 2


def test_pods_of_the_same_name_are_told_apart(told: Told) -> None:
    told.fleet.observe_pod(pod("old"))
    told.fleet.observe_pod(pod("new"))
    told.fleet.forget_pod(pod("old"))
    assert [each.uid for each in told.fleet.view().snapshot().pods] == ["new"]


def test_discovered_pool_is_not_declared(told: Told) -> None:
    told.fleet.observe_pool(pool(**{"tonnage.dev/discovered": "true"}))
    assert told.fleet.view().snapshot().declared_pools == ()


def test_end_of_a_discovered_pool_is_told_so_that_it_is_made_again(told: Told) -> None:
    discovered = pool(**{"tonnage.dev/discovered": "true"})
    told.fleet.observe_pool(discovered)
    told.fleet.forget_pool(discovered)
    assert (told.changes, told.rooms) == (1, 0)


def test_pool_that_cannot_be_read_is_left_out_and_named(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.fleet.observe_pool(pool())
    told.fleet.observe_pool(pool(cost="a lot"))
    assert told.fleet.view().snapshot().declared_pools == ()
    assert "AcceleratorPool amd" in caplog.text


def test_list_forgets_what_is_gone(told: Told) -> None:
    told.fleet.observe_node(node("a", "a"))
    told.fleet.observe_node(node("b", "b"))
    show(told.fleet, NODES, [node("b", "b"), node("c", "c")])
    assert [each.name for each in told.fleet.view().snapshot().nodes] == ["b", "c"]


def test_list_that_shows_nothing_new_tells_nobody(told: Told) -> None:
    told.fleet.observe_node(node())
    show(told.fleet, NODES, [node()])
    assert told.changes == 1


def test_event_during_a_list_is_newer_than_the_list(told: Told) -> None:
    told.fleet.observe_pod(pod("stays"))
    told.fleet.observe_pod(pod("goes"))
    listing = told.fleet.begin_list(PODS)
    told.fleet.forget_pod(pod("goes"))
    told.fleet.observe_pod(pod("comes"))
    for each in (pod("stays"), pod("goes")):
        listing.take(each)
    listing.end()
    assert {each.uid for each in told.fleet.view().snapshot().pods} == {"stays", "comes"}


def test_next_list_corrects_an_event_that_was_wrong(told: Told) -> None:
    told.fleet.observe_pod(pod("ghost"))
    show(told.fleet, PODS, [])
    assert told.fleet.view().snapshot().pods == ()


def test_growing_reservation_takes_room_and_wakes_nobody(told: Told) -> None:
    told.fleet.reserve(LLAMA, [reservation(LLAMA)])
    assert (told.changes, told.rooms) == (1, 0)
    told.fleet.reserve(LLAMA, [reservation(LLAMA)])
    assert told.changes == 1


def test_smaller_reservation_wakes_those_who_wait(told: Told) -> None:
    told.fleet.reserve(LLAMA, [reservation(LLAMA, replicas=2)])
    told.fleet.reserve(LLAMA, [reservation(LLAMA, replicas=1)])
    assert told.rooms == 1


def test_released_object_reserves_nothing_and_waits_for_nothing(told: Told) -> None:
    told.fleet.reserve(LLAMA, [reservation(LLAMA)])
    told.fleet.wait_for_capacity(waiting(LLAMA, 1))
    told.fleet.release(LLAMA)
    assert told.fleet.view().snapshot().reservations == ()
    assert told.fleet.known_keys() == set()
    assert told.rooms == 1


def test_release_of_the_unknown_tells_nobody(told: Told) -> None:
    told.fleet.release(LLAMA)
    assert (told.changes, told.rooms) == (0, 0)


def test_primed_ledger_is_what_exists(told: Told) -> None:
    told.fleet.reserve(GEMMA, [reservation(GEMMA)])
    have = [reservation(LLAMA, placement="amd"), reservation(LLAMA, placement="nvidia")]
    told.fleet.prime_reservations(have)
    assert told.fleet.view().snapshot().reservations == tuple(have)
    assert told.fleet.known_keys() == {LLAMA}


def test_oldest_waits_first(told: Told) -> None:
    told.fleet.wait_for_capacity(waiting(LLAMA, 2))
    told.fleet.wait_for_capacity(waiting(GEMMA, 1))
    assert told.fleet.waiting_keys() == [GEMMA, LLAMA]
    told.fleet.stop_waiting(GEMMA)
    assert told.fleet.waiting_keys() == [LLAMA]


def test_higher_priority_waits_before_the_oldest() -> None:
    fleet = Told().fleet
    fleet.wait_for_capacity(waiting(LLAMA, 1))
    fleet.wait_for_capacity(waiting(GEMMA, 2, priority=10))
    assert fleet.waiting_keys() == [GEMMA, LLAMA]


def test_claims_are_those_of_whoever_goes_first() -> None:
    fleet = Told().fleet
    fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    fleet.wait_for_capacity(waiting(GEMMA, 2), [reservation(GEMMA)])
    assert fleet.claims_before(waiting(LLAMA, 1)) == ()
    assert fleet.claims_before(waiting(GEMMA, 2)) == (reservation(LLAMA),)
    later = waiting(Key("chat", "qwen"), 3)
    assert fleet.claims_before(later) == (reservation(LLAMA), reservation(GEMMA))


def test_claims_that_end_leave_room_to_those_after_them(told: Told) -> None:
    told.fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    told.fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    assert told.rooms == 0
    told.fleet.wait_for_capacity(waiting(LLAMA, 1))
    assert told.rooms == 1
    told.fleet.wait_for_capacity(waiting(LLAMA, 1), [reservation(LLAMA)])
    told.fleet.stop_waiting(LLAMA)
    assert told.rooms == 2


def test_only_who_is_concerned_is_told_of_a_node_that_is_gone_or_less(told: Told) -> None:
    told.fleet.observe_node(node("a", "a"))
    told.fleet.observe_node(node("b", "b"))
    for name, key in (("a", LLAMA), ("b", GEMMA)):
        held = pod(key.name, name, gpus=4)
        labels = {LABEL_OWNER: key.name, LABEL_PLACEMENT: "amd"}
        held["metadata"]["labels"] = labels
        told.fleet.observe_pod(held)
        told.fleet.reserve(key, [reservation(key, replicas=1)])
    told.fleet.view().pools()
    told.fleet.observe_node(node("a", "a", unschedulable=True))
    assert told.losers == [LLAMA]
    show(told.fleet, NODES, [node("a", "a", unschedulable=True)])
    assert told.losers == [LLAMA, GEMMA]
    told.fleet.forget_node(node("a", "a"))
    assert told.losers == [LLAMA, GEMMA, LLAMA]
