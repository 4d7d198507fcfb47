"""The cache of the fleet: what changes it, what does not, and whom it tells."""

from datetime import UTC, datetime

import pytest

from tests.support.fleet_objects import node, pod, pool
from tonnage.fleet.model import Reservation
from tonnage.kube.protocol import Object
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState

LLAMA, GEMMA = Key("chat", "llama"), Key("chat", "gemma")


class Told:
    """Counts what the fleet tells."""

    def __init__(self) -> None:
        self.changes = 0
        self.rooms = 0
        self.fleet = FleetState(self._change, self._room)

    def _change(self) -> None:
        self.changes += 1

    def _room(self) -> None:
        self.rooms += 1


@pytest.fixture
def told() -> Told:
    return Told()


def reservation(key: Key, replicas: int = 2, placement: str = "amd") -> Reservation:
    return Reservation((key.namespace, key.name), placement, "amd", 4, replicas)


def test_snapshot_is_made_anew_only_after_a_change(told: Told) -> None:
    told.fleet.observe_node(node())
    first = told.fleet.snapshot()
    assert told.fleet.snapshot() is first
    told.fleet.observe_pod(pod())
    assert told.fleet.snapshot() is not first


def test_snapshot_is_in_order(told: Told) -> None:
    for name in ("c", "a", "b"):
        told.fleet.observe_node(node(name, uid=name))
    assert [each.name for each in told.fleet.snapshot().nodes] == ["a", "b", "c"]


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
    before = told.fleet.snapshot()
    told.fleet.observe_node(CHANGES[name])
    assert told.changes == 2
    assert (told.fleet.snapshot() == before) == (name == "made anew")


def test_deleted_node_is_forgotten(told: Told) -> None:
    told.fleet.observe_node(node())
    told.fleet.forget_node(node())
    assert told.fleet.snapshot().nodes == ()


def test_late_deletion_does_not_forget_the_node_made_anew(told: Told) -> None:
    told.fleet.observe_node(node(uid="new"))
    told.fleet.forget_node(node(uid="old"))
    assert len(told.fleet.snapshot().nodes) == 1


def test_pod_without_gpus_is_not_kept(told: Told) -> None:
    told.fleet.observe_pod(pod(gpus=0))
    assert (told.fleet.snapshot().pods, told.changes) == ((), 0)


def test_finished_pod_gives_its_gpus_back(told: Told) -> None:
    told.fleet.observe_pod(pod())
    told.fleet.observe_pod(pod(phase="Succeeded"))
    assert told.fleet.snapshot().pods == ()
    assert told.rooms == 2


def test_pods_of_the_same_name_are_told_apart(told: Told) -> None:
    told.fleet.observe_pod(pod("old"))
    told.fleet.observe_pod(pod("new"))
    told.fleet.forget_pod(pod("old"))
    assert [each.uid for each in told.fleet.snapshot().pods] == ["new"]


def test_discovered_pool_is_not_declared(told: Told) -> None:
    told.fleet.observe_pool(pool(**{"tonnage.dev/discovered": "true"}))
    assert told.fleet.snapshot().declared_pools == ()


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
    assert told.fleet.snapshot().declared_pools == ()
    assert "AcceleratorPool amd" in caplog.text


def test_list_forgets_what_is_gone(told: Told) -> None:
    told.fleet.observe_node(node("a", "a"))
    told.fleet.observe_node(node("b", "b"))
    told.fleet.replace_nodes([node("b", "b"), node("c", "c")], told.fleet.mark_nodes())
    assert [each.name for each in told.fleet.snapshot().nodes] == ["b", "c"]


def test_list_that_shows_nothing_new_tells_nobody(told: Told) -> None:
    told.fleet.observe_node(node())
    told.fleet.replace_nodes([node()], told.fleet.mark_nodes())
    assert told.changes == 1


def test_event_during_a_list_is_newer_than_the_list(told: Told) -> None:
    told.fleet.observe_pod(pod("stays"))
    told.fleet.observe_pod(pod("goes"))
    since = told.fleet.mark_pods()
    told.fleet.forget_pod(pod("goes"))
    told.fleet.observe_pod(pod("comes"))
    told.fleet.replace_pods([pod("stays"), pod("goes")], since)
    assert {each.uid for each in told.fleet.snapshot().pods} == {"stays", "comes"}


def test_next_list_corrects_an_event_that_was_wrong(told: Told) -> None:
    told.fleet.observe_pod(pod("ghost"))
    told.fleet.replace_pods([], told.fleet.mark_pods())
    assert told.fleet.snapshot().pods == ()


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
    told.fleet.wait_for_capacity(LLAMA, datetime(2026, 1, 1, tzinfo=UTC))
    told.fleet.release(LLAMA)
    assert told.fleet.snapshot().reservations == ()
    assert told.fleet.known_keys() == set()
    assert told.rooms == 1


def test_release_of_the_unknown_tells_nobody(told: Told) -> None:
    told.fleet.release(LLAMA)
    assert (told.changes, told.rooms) == (0, 0)


def test_primed_ledger_is_what_exists(told: Told) -> None:
    told.fleet.reserve(GEMMA, [reservation(GEMMA)])
    have = [reservation(LLAMA, placement="amd"), reservation(LLAMA, placement="nvidia")]
    told.fleet.prime_reservations(have)
    assert told.fleet.snapshot().reservations == tuple(have)
    assert told.fleet.known_keys() == {LLAMA}


def test_oldest_waits_first(told: Told) -> None:
    told.fleet.wait_for_capacity(LLAMA, datetime(2026, 1, 2, tzinfo=UTC))
    told.fleet.wait_for_capacity(GEMMA, datetime(2026, 1, 1, tzinfo=UTC))
    assert told.fleet.waiting_keys() == [GEMMA, LLAMA]
    told.fleet.stop_waiting(GEMMA)
    assert told.fleet.waiting_keys() == [LLAMA]
