"""What was reserved, less the replicas that have their GPUs."""

from tonnage.fleet.held import HeldGpus
from tonnage.fleet.model import GpuPod, Reservation
from tonnage.fleet.occupancy import Successor
from tonnage.fleet.promised import Promises, largest_first

ONE, TWO = ("chat", "one"), ("chat", "two")
POOL_OF = {"n0": "h100", "n1": "h100", "m0": "mi300x"}.get


def reservation(
    owner: tuple[str, str] = ONE, pool: str = "h100", gpus: int = 4, replicas: int = 2
) -> Reservation:
    return Reservation(owner, "h100", pool, gpus, replicas)


def pod(
    uid: str, node: str | None, gpus: int = 4, placement: str = "h100", *, deleting: bool = False
) -> GpuPod:
    return GpuPod(uid, node, {"nvidia.com/gpu": gpus}, ONE, placement, deleting)


class Ledger:
    def __init__(self, *pods: GpuPod) -> None:
        self.held = HeldGpus()
        for one in pods:
            self.held.put(one)
        self.promises = Promises(self.held)

    def reserve(self, *reservations: Reservation) -> set[str]:
        self.promises.replace(reservations[0].owner, reservations)
        return self.promises.settle(POOL_OF)


def test_what_is_not_scheduled_waits() -> None:
    ledger = Ledger(pod("a", "n0"), pod("pending", None))
    assert ledger.reserve(reservation(replicas=3)) == {"h100"}
    assert ledger.promises.waiting("h100") == [(4, 2)]
    assert ledger.promises.pools_of(ONE) == {"h100"}


def test_a_pod_that_is_not_such_a_replica_stands_for_none() -> None:
    strangers = [
        pod("other pool", "m0"),
        pod("gone", "gone"),
    ]
    ledger = Ledger(*strangers)
    ledger.reserve(reservation())
    assert ledger.promises.waiting("h100") == [(4, 2)]
    assert ledger.promises.successors("h100") == ()


def test_a_pod_that_will_be_replaced_leaves_its_gpus_to_its_successor() -> None:
    ledger = Ledger(
        pod("older split", "n0", gpus=2),
        pod("older placement", "n0", placement="l40s"),
        pod("ends", "n1", deleting=True),
        pod("stays", "n1"),
    )
    ledger.reserve(reservation(replicas=3))
    assert ledger.promises.waiting("h100") == []
    assert ledger.promises.successors("h100") == (Successor(4, 2, {"n0": 6, "n1": 4}),)
    assert ledger.promises.successors("h100", excluding=ONE) == ()
    ledger.reserve(reservation(TWO))
    assert ledger.promises.waiting("h100", excluding=ONE) == [(4, 2)]


def test_who_got_all_replaces_nothing() -> None:
    ledger = Ledger(pod("a", "n0"), pod("b", "n0"), pod("too many", "n1"))
    ledger.reserve(reservation())
    assert ledger.promises.successors("h100") == ()


def test_what_all_owners_wait_for_adds_up_and_one_can_be_left_out() -> None:
    ledger = Ledger()
    ledger.reserve(reservation())
    ledger.reserve(reservation(TWO), reservation(TWO, gpus=8, replicas=1))
    assert ledger.promises.waiting("h100") == [(8, 1), (4, 4)]
    assert ledger.promises.waiting("h100", excluding=TWO) == [(4, 2)]
    assert ledger.promises.waiting("mi300x") == []


def test_only_what_changes_is_told() -> None:
    ledger = Ledger()
    ledger.reserve(reservation())
    assert ledger.promises.settle(POOL_OF) == set()
    assert ledger.reserve(reservation()) == set()
    assert ledger.reserve(reservation(pool="mi300x")) == {"h100", "mi300x"}


def test_a_replica_that_is_scheduled_waits_no_more() -> None:
    ledger = Ledger()
    ledger.reserve(reservation())
    ledger.held.put(pod("a", "n0"))
    ledger.promises.touch(ONE)
    assert ledger.promises.settle(POOL_OF) == {"h100"}
    assert ledger.promises.waiting("h100") == [(4, 1)]


def test_nodes_in_another_pool_than_before_count_there() -> None:
    ledger = Ledger(pod("a", "n0"), pod("b", "n1"))
    assert ledger.reserve(reservation()) == set()
    ledger.promises.touch_all()
    assert ledger.promises.settle(lambda node: "renamed") == {"h100"}
    assert ledger.promises.waiting("h100") == [(4, 2)]


def test_nothing_is_left_of_an_owner_without_reservations() -> None:
    ledger = Ledger()
    ledger.reserve(reservation())
    ledger.promises.replace(ONE, ())
    assert ledger.promises.settle(POOL_OF) == {"h100"}
    assert list(ledger.promises.owners()) == []
    assert ledger.promises.waiting("h100") == []


def test_reservations_to_be_packed_are_added_up_by_size() -> None:
    found = [
        reservation(replicas=1),
        reservation(TWO, gpus=8),
        reservation(TWO),
        reservation(gpus=0),
    ]
    assert largest_first(found) == [(8, 2), (4, 3)]
