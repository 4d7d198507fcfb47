"""The fleet as the stores tell of it: what is a change, what is none, and who is notified."""

from datetime import UTC, datetime

import pytest

from tests.support.fleet_objects import node, pod, pool
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.catalog.load import load_catalog
from tonnage.fleet.model import Reservation
from tonnage.fleet.node import read_node
from tonnage.fleet.pod import read_gpu_pod
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

    def node(self, before: Object | None, after: Object | None) -> None:
        """The store's node changes."""
        (name,) = {each["metadata"]["name"] for each in (before, after) if each is not None}
        read = (None if each is None else read_node(each) for each in (before, after))
        self.fleet.change_node(name, *read)

    def pod(self, before: Object | None, after: Object | None) -> None:
        """The store's pod changes."""
        self.fleet.change_pod(*(each and read_gpu_pod(each) for each in (before, after)))

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


def test_view_follows_every_change(told: Told) -> None:
    view = told.fleet.view()
    told.node(None, node())
    assert [pool.total for pool in view.pools()] == [8]
    told.pod(None, pod())
    assert [pool.nodes.counts.nodes for pool in view.pools()] == [1]
    told.node(node(), None)
    assert view.pools() == ()


def test_snapshot_is_in_order(told: Told) -> None:
    for name in ("c", "a", "b"):
        told.node(None, node(name, uid=name))
    assert [each.name for each in told.fleet.view().snapshot().nodes] == ["a", "b", "c"]


def test_a_heartbeat_of_a_node_is_no_change(told: Told) -> None:
    told.node(None, node())
    beat = node()
    beat["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
    beat["status"]["images"] = [{"names": ["x"]}]
    beat["status"]["allocatable"]["cpu"] = "95"
    told.node(node(), beat)
    assert (told.changes, told.rooms, told.fleet.changes) == (1, 1, 1)


CHANGES: dict[str, Object] = {
    "cordon": node(unschedulable=True),
    "taint": node(taints=[{"key": "k", "effect": "NoSchedule"}]),
    "fewer GPUs": node(gpus=7),
    "more GPUs": node(gpus=9),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_a_node_is_one_of_the_fleet(told: Told, name: str) -> None:
    told.node(None, node())
    before = told.fleet.view().snapshot()
    told.node(node(), CHANGES[name])
    assert (told.changes, told.rooms, told.fleet.changes) == (2, 2, 2)
    assert told.fleet.view().snapshot() != before


def test_a_node_made_anew_as_it_was_changes_nothing(told: Told) -> None:
    told.node(None, node(uid="u1"))
    told.node(node(uid="u1"), node(uid="u2"))
    assert told.changes == 1


def test_a_node_that_is_gone_leaves_the_fleet(told: Told) -> None:
    told.node(None, node())
    told.node(node(), None)
    assert told.fleet.view().snapshot().nodes == ()
    assert told.changes == 2


def test_a_pod_without_gpus_is_no_change(told: Told) -> None:
    told.pod(None, pod(gpus=0))
    told.pod(pod(gpus=0), None)
    assert (told.fleet.view().snapshot().pods, told.changes) == ((), 0)


@pytest.mark.parametrize("after", [pod(phase="Succeeded"), pod(phase="Failed"), None])
def test_a_pod_that_ends_gives_its_gpus_back(told: Told, after: Object | None) -> None:
    told.pod(None, pod())
    told.pod(pod(), after)
    assert told.fleet.view().snapshot().pods == ()
    assert (told.changes, told.rooms) == (2, 2)


def test_a_change_of_a_pod_that_holds_the_same_is_none(told: Told) -> None:
    told.pod(None, pod())
    changed = pod()
    changed["metadata"]["annotations"] = {"some": "news"}
    told.pod(pod(), changed)
    assert told.changes == 1


def test_a_pod_that_is_bound_holds_the_gpus_of_its_node(told: Told) -> None:
    told.pod(None, pod(node_name=None))
    told.pod(pod(node_name=None), pod())
    (held,) = told.fleet.view().snapshot().pods
    assert held.node == "gpu-1"


def test_a_pod_made_anew_holds_gpus_in_place_of_the_old_one(told: Told) -> None:
    told.pod(None, pod("old"))
    told.pod(pod("old"), pod("new"))
    assert [each.uid for each in told.fleet.view().snapshot().pods] == ["new"]
    assert told.changes == 2


def test_a_declared_pool_comes_changes_and_goes(told: Told) -> None:
    assert told.fleet.change_pool("amd", pool())
    assert not told.fleet.change_pool("amd", pool(uid="u2"))
    assert told.fleet.change_pool("amd", pool(cost="3"))
    (declared,) = told.fleet.view().snapshot().declared_pools
    assert declared.name == "amd"
    assert told.fleet.change_pool("amd", None)
    assert told.fleet.view().snapshot().declared_pools == ()
    assert (told.changes, told.rooms) == (3, 3)


def test_a_discovered_pool_is_not_declared(told: Told) -> None:
    assert not told.fleet.change_pool("amd", pool(**{"tonnage.dev/discovered": "true"}))
    assert told.fleet.view().snapshot().declared_pools == ()
    assert told.changes == 0


def test_a_pool_that_is_declared_no_more_is_withdrawn(told: Told) -> None:
    told.fleet.change_pool("amd", pool())
    assert told.fleet.change_pool("amd", pool(**{"tonnage.dev/discovered": "true"}))
    assert told.fleet.view().snapshot().declared_pools == ()


def test_end_of_a_discovered_pool_is_a_change_so_that_it_is_made_again(told: Told) -> None:
    told.fleet.change_pool("amd", pool(**{"tonnage.dev/discovered": "true"}))
    assert not told.fleet.change_pool("amd", None)
    assert (told.changes, told.rooms) == (1, 0)


def test_pool_that_cannot_be_read_is_left_out_and_named(
    told: Told, caplog: pytest.LogCaptureFixture
) -> None:
    told.fleet.change_pool("amd", pool())
    assert told.fleet.change_pool("amd", pool(cost="a lot"))
    assert told.fleet.view().snapshot().declared_pools == ()
    assert "AcceleratorPool amd" in caplog.text


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


def test_only_owners_of_replicas_on_a_node_lose_gpus_with_it(told: Told) -> None:
    told.node(None, node("a", "a"))
    told.node(None, node("b", "b"))
    for name, key in (("a", LLAMA), ("b", GEMMA)):
        held = pod(key.name, name, gpus=4)
        held["metadata"]["labels"] = {LABEL_OWNER: key.name, LABEL_PLACEMENT: "amd"}
        told.pod(None, held)
        told.fleet.reserve(key, [reservation(key, replicas=1)])
    told.fleet.view().pools()
    told.node(node("a", "a"), node("a", "a", unschedulable=True))
    assert told.losers == [LLAMA]
    told.node(node("b", "b"), None)
    assert told.losers == [LLAMA, GEMMA]
    told.node(node("a", "a", unschedulable=True), None)
    assert told.losers == [LLAMA, GEMMA, LLAMA]
