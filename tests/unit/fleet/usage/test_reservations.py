"""Reserved replicas, less those that are scheduled."""

from tonnage.fit.model import Footprint
from tonnage.fleet.model import GpuPod, Reservation
from tonnage.fleet.occupancy import Successor
from tonnage.fleet.usage.gpu_pods import GpuPods
from tonnage.fleet.usage.reservations import Reservations, largest_first

ONE, TWO = ("chat", "one"), ("chat", "two")
POOL_OF = {"n0": "h100", "n1": "h100", "m0": "mi300x"}.get


def reservation(
    owner: tuple[str, str] = ONE, pool: str = "h100", gpus: int = 4, replicas: int = 2
) -> Reservation:
    return Reservation(owner, "h100", pool, Footprint(gpus), replicas)


def pod(
    uid: str, node: str | None, gpus: int = 4, placement: str = "h100", *, deleting: bool = False
) -> GpuPod:
    return GpuPod(uid, node, {"nvidia.com/gpu": gpus}, ONE, placement, deleting)


class Scenario:
    def __init__(self, *pods: GpuPod) -> None:
        self.pods = GpuPods()
        for one in pods:
            self.pods.put(one)
        self.reservations = Reservations(self.pods)

    def reserve(self, *reservations: Reservation) -> set[str]:
        self.reservations.replace(reservations[0].owner, reservations)
        return self.reservations.refresh(POOL_OF)


def test_unscheduled_replicas_wait() -> None:
    scenario = Scenario(pod("a", "n0"), pod("pending", None))
    assert scenario.reserve(reservation(replicas=3)) == {"h100"}
    assert scenario.reservations.waiting("h100") == [(Footprint(4), 2)]
    assert scenario.reservations.pools_of(ONE) == {"h100"}


def test_a_pod_elsewhere_is_no_scheduled_replica() -> None:
    scenario = Scenario(pod("other pool", "m0"), pod("gone", "gone"))
    scenario.reserve(reservation())
    assert scenario.reservations.waiting("h100") == [(Footprint(4), 2)]
    assert scenario.reservations.successors("h100") == ()


def test_a_pod_that_will_be_replaced_leaves_its_gpus_to_its_successor() -> None:
    scenario = Scenario(
        pod("older split", "n0", gpus=2),
        pod("older placement", "n0", placement="l40s"),
        pod("ends", "n1", deleting=True),
        pod("stays", "n1"),
    )
    scenario.reserve(reservation(replicas=3))
    assert scenario.reservations.waiting("h100") == []
    assert scenario.reservations.successors("h100") == (
        Successor(Footprint(4), 2, {"n0": 6, "n1": 4}),
    )
    assert scenario.reservations.successors("h100", excluding=ONE) == ()
    scenario.reserve(reservation(TWO))
    assert scenario.reservations.waiting("h100", excluding=ONE) == [(Footprint(4), 2)]


def test_an_owner_with_all_replicas_replaces_no_pod() -> None:
    scenario = Scenario(pod("a", "n0"), pod("b", "n0"), pod("too many", "n1"))
    scenario.reserve(reservation())
    assert scenario.reservations.successors("h100") == ()


def test_waiting_replicas_add_up_over_owners_without_an_excluded_one() -> None:
    scenario = Scenario()
    scenario.reserve(reservation())
    scenario.reserve(reservation(TWO), reservation(TWO, gpus=8, replicas=1))
    assert scenario.reservations.waiting("h100") == [(Footprint(8), 1), (Footprint(4), 4)]
    assert scenario.reservations.waiting("h100", excluding=TWO) == [(Footprint(4), 2)]
    assert scenario.reservations.waiting("mi300x") == []


def test_only_pools_with_changes_are_returned() -> None:
    scenario = Scenario()
    scenario.reserve(reservation())
    assert scenario.reservations.refresh(POOL_OF) == set()
    assert scenario.reserve(reservation()) == set()
    assert scenario.reserve(reservation(pool="mi300x")) == {"h100", "mi300x"}


def test_a_scheduled_replica_waits_no_more() -> None:
    scenario = Scenario()
    scenario.reserve(reservation())
    scenario.pods.put(pod("a", "n0"))
    scenario.reservations.mark_stale(ONE)
    assert scenario.reservations.refresh(POOL_OF) == {"h100"}
    assert scenario.reservations.waiting("h100") == [(Footprint(4), 1)]


def test_nodes_in_another_pool_than_before_count_there() -> None:
    scenario = Scenario(pod("a", "n0"), pod("b", "n1"))
    assert scenario.reserve(reservation()) == set()
    scenario.reservations.mark_all_stale()
    assert scenario.reservations.refresh(lambda node: "renamed") == {"h100"}
    assert scenario.reservations.waiting("h100") == [(Footprint(4), 2)]


def test_an_owner_without_reservations_leaves_nothing_behind() -> None:
    scenario = Scenario()
    scenario.reserve(reservation())
    scenario.reservations.replace(ONE, ())
    assert scenario.reservations.refresh(POOL_OF) == {"h100"}
    assert list(scenario.reservations.owners()) == []
    assert scenario.reservations.waiting("h100") == []


def test_reservations_to_be_packed_are_added_up_by_size() -> None:
    reservations = [
        reservation(replicas=1),
        reservation(TWO, gpus=8),
        reservation(TWO),
        reservation(gpus=0),
    ]
    assert largest_first(reservations) == [(Footprint(8), 2), (Footprint(4), 3)]


def test_a_replica_on_two_nodes_waits_for_the_rest_of_its_pods() -> None:
    scenario = Scenario(pod("a", "n0"), pod("b", "n1"), pod("c", "n0"))
    scenario.reserve(Reservation(ONE, "h100", "h100", Footprint(4, 2), 3))
    assert scenario.reservations.waiting("h100") == [(Footprint(4, 2), 1), (Footprint(4), 1)]
    assert scenario.reservations.gpus_in("h100") == {ONE: 24}
