"""A fleet after any history of events equals one that is built from the final objects."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleets.gpu_nodes import H100, L40S, MI300X, amd_node, nvidia_labels, nvidia_node
from tonnage.api.pod import Toleration
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, FleetSnapshot, GpuPod, Node, Pool, Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.pool_nodes import largest_size
from tonnage.fleet.pools.declared import read_declared_pool
from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources

CATALOG = load_catalog()
GIB = 2**30
OWNERS = [("chat", "one"), ("chat", "two"), ("code", "one")]
TAINT = {"key": "dedicated", "value": "train", "effect": "NoSchedule"}
TOLERATION = Toleration(key="dedicated", operator="Exists")
ASKERS: list[tuple[tuple[str, str] | None, tuple[Toleration, ...]]] = [
    (None, ()),
    (OWNERS[0], ()),
    (OWNERS[1], (TOLERATION,)),
    (None, (TOLERATION,)),
]

KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "H100": lambda name, **how: nvidia_node(name, H100, **how),
    "H100 on GKE": lambda name, **how: nvidia_node(
        name, {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}, **how
    ),
    "H100 of a team on GKE": lambda name, **how: nvidia_node(
        name,
        H100 | {"team": "a", "cloud.google.com/gke-accelerator": "nvidia-h100-80gb"},
        **how,
    ),
    "H100 of a team": lambda name, **how: nvidia_node(name, H100 | {"team": "a"}, **how),
    "H100 of a team in a zone": lambda name, **how: nvidia_node(
        name, H100 | {"team": "a", "zone": "z"}, **how
    ),
    "L40S in a zone": lambda name, **how: nvidia_node(name, L40S | {"zone": "z"}, gpus=4, **how),
    "shared": lambda name, **how: nvidia_node(
        name, nvidia_labels("NVIDIA-L40S-SHARED", 46068), gpus=32, **how
    ),
    "unlabelled": lambda name, **how: nvidia_node(name, {"team": "a"}, **how),
    "no GPU": lambda name, **how: nvidia_node(name, {"zone": "z"}, gpus=0, **how),
    "MI300X": lambda name, **how: amd_node(name, MI300X, **how),
    "MI300X in another mode": lambda name, **how: amd_node(
        name, MI300X | {"amd.com/gpu.compute-memory-partition": "spx_nps4"}, **how
    ),
    "MI300X as a virtual function": lambda name, **how: amd_node(
        name, MI300X | {"amd.com/gpu.device-id": "74b5"}, **how
    ),
    "MI300X counted": lambda name, **how: amd_node(
        name, {"beta.amd.com/gpu.device-id.74a1": "8", "team": "a"}, **how
    ),
}
CONDITIONS: list[dict[str, Any]] = [{}, {}, {"cordoned": True}, {"taints": [TAINT]}]

nodes = st.builds(
    lambda name, kind, how, size: replace(read_node(KINDS[kind](name, **how)), size=size),
    st.sampled_from([f"n{number}" for number in range(6)]),
    st.sampled_from(sorted(KINDS)),
    st.sampled_from(CONDITIONS),
    st.sampled_from(
        [UNKNOWN_SIZE, Resources(96_000, 2**40, 2**40), Resources(7900, 31 * GIB + 5, 2**40)]
    ),
)
pods = st.builds(
    GpuPod,
    uid=st.sampled_from([f"p{number}" for number in range(8)]),
    node=st.sampled_from([None, "gone", *(f"n{number}" for number in range(6))]),
    requests=st.dictionaries(
        st.sampled_from(["nvidia.com/gpu", "amd.com/gpu"]), st.integers(0, 9), max_size=2
    ),
    owner=st.none() | st.sampled_from(OWNERS),
    placement=st.sampled_from(["h100", "mi300x"]),
    others=st.sampled_from([NOTHING, Resources(2500, 5 * GIB, GIB), Resources(60_000, GIB, 0)]),
)
REQUESTS = [Resources(500), Resources(2000, 7 * GIB, 0), Resources(0, 0, 600 * GIB)]
POOLS = ["amd-mi300x", "nvidia-h100-sxm-80gb", "nvidia-l40s", "teams", "zone", "nowhere"]
reservations = st.lists(
    st.builds(
        Reservation,
        owner=st.just(("", "")),
        placement=st.sampled_from(["h100", "mi300x"]),
        pool=st.sampled_from(POOLS),
        footprint=st.builds(
            Footprint, st.sampled_from([0, 1, 2, 4, 8]), st.sampled_from([1, 1, 2])
        ),
        replicas=st.sampled_from([0, 1, 2, 5, 10**12]),
    ),
    max_size=3,
    unique_by=lambda reservation: (
        reservation.placement,
        reservation.pool,
        reservation.footprint.gpus_per_node,
    ),
)


def declared(name: str, spec: dict[str, Any]) -> DeclaredPool:
    pool = read_declared_pool({"metadata": {"name": name}, "spec": spec})
    assert pool is not None
    return pool


declarations = st.builds(
    declared,
    st.sampled_from(["teams", "zone", "amd-mi300x"]),
    st.fixed_dictionaries(
        {
            "nodeSelector": st.sampled_from(
                [{"team": "a"}, {"zone": "z"}, {"team": "a", "zone": "z"}]
            )
        },
        optional={
            "accelerator": st.sampled_from(["h100-sxm-80gb", "mi300x", "mi300"]),
            "maxNodes": st.integers(1, 4),
            "weight": st.integers(0, 3),
            "tolerations": st.just([{"key": "dedicated", "operator": "Exists"}]),
        },
    ),
)
events = st.lists(
    st.one_of(
        st.tuples(st.just("put node"), nodes),
        st.tuples(st.just("remove node"), st.sampled_from(["n0", "n1", "n2", "n3", "absent"])),
        st.tuples(st.just("put pod"), pods),
        st.tuples(st.just("remove pod"), st.sampled_from(["p0", "p1", "p2", "p3", "absent"])),
        st.tuples(st.just("declare"), declarations),
        st.tuples(st.just("withdraw"), st.sampled_from(["teams", "zone", "absent"])),
        st.tuples(st.just("reserve"), st.tuples(st.sampled_from(OWNERS), reservations)),
        st.tuples(st.just("ask"), st.sampled_from(ASKERS)),
    ),
    max_size=30,
)


@dataclass
class ModelFleet:
    """The last state of each object in the history."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[str, GpuPod] = field(default_factory=dict)
    declared: dict[str, DeclaredPool] = field(default_factory=dict)
    reserved: dict[tuple[str, str], tuple[Reservation, ...]] = field(default_factory=dict)

    def snapshot(self, random: Random) -> FleetSnapshot:
        """All of it, in any order; the reservations of one owner together."""
        parts: list[list[Any]] = [
            list(self.nodes.values()),
            list(self.pods.values()),
            [one for of_owner in self.reserved.values() for one in of_owner],
            list(self.declared.values()),
        ]
        for part in parts:
            random.shuffle(part)
        return FleetSnapshot(*map(tuple, parts))


def live(history: Sequence[tuple[str, Any]]) -> tuple[Fleet, ModelFleet]:
    """A fleet that received the events of the history, and the objects as they are after it."""
    fleet, model = Fleet(CATALOG), ModelFleet()
    for what, value in history:
        match what:
            case "put node":
                fleet.put_node(value)
                model.nodes[value.name] = value
            case "remove node":
                fleet.remove_node(value)
                model.nodes.pop(value, None)
            case "put pod":
                fleet.put_pod(value)
                model.pods[value.uid] = value
            case "remove pod":
                fleet.remove_pod(value)
                model.pods.pop(value, None)
            case "declare":
                fleet.declare(value)
                model.declared[value.name] = value
            case "withdraw":
                fleet.withdraw(value)
                model.declared.pop(value, None)
            case "reserve":
                owner, reserved = value
                model.reserved[owner] = tuple(replace(one, owner=owner) for one in reserved)
                fleet.reserve(owner, model.reserved[owner])
            case "ask":
                excluding, tolerations = value
                fleet.pools(excluding, tolerations)
    return fleet, model


def in_order(snapshot: FleetSnapshot) -> FleetSnapshot:
    """The reservations in one order; the reservations of one owner keep theirs."""
    return replace(snapshot, reservations=tuple(sorted(snapshot.reservations, key=repr)))


@given(events, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_a_fleet_after_any_history_equals_one_built_from_a_snapshot(
    history: list[tuple[str, Any]], random: Random
) -> None:
    fleet, model = live(history)
    fresh = Fleet.of(model.snapshot(random), CATALOG)
    for excluding, tolerations in ASKERS:
        assert fleet.pools(excluding, tolerations) == fresh.pools(excluding, tolerations)
    assert in_order(fleet.snapshot()) == in_order(fresh.snapshot())
    for name in model.nodes:
        assert fleet.pool_of(name) == fresh.pool_of(name)


@given(events)
@settings(max_examples=150, deadline=None)
def test_counts_equal_the_listed_nodes(history: list[tuple[str, Any]]) -> None:
    fleet, _ = live(history)
    for excluding, tolerations in ASKERS:
        for pool in fleet.pools(excluding, tolerations):
            listed = list(pool.nodes)
            assert [node.name for node in listed] == sorted(node.name for node in listed)
            assert len(pool.nodes) == len(listed)
            assert pool.total == sum(node.gpus for node in listed)
            assert pool.allocatable == sum(node.allocatable for node in listed)
            assert pool.free == sum(node.free for node in listed)
            assert pool.largest_free_block == max((node.free for node in listed), default=0)
            assert pool.nodes.counts.usable == sum(node.unusable is None for node in listed)
            for gpus in (1, 2, 3, 4, 8):
                pods = [node.free // gpus for node in listed]
                assert pool.replica_capacity(Footprint(gpus)) == sum(pods)
                for nodes in (2, 3):
                    capacity = pool.replica_capacity(Footprint(gpus, nodes))
                    assert capacity == most_groups(pods, nodes)


@given(events)
@settings(max_examples=300, deadline=None)
def test_capacity_for_other_requests_equals_a_naive_count(history: list[tuple[str, Any]]) -> None:
    """Waiting replicas are packed onto the nodes that have enough for all their free GPUs first."""
    fleet, model = live(history)
    for excluding, tolerations in ASKERS:
        for pool in fleet.pools(excluding, tolerations):
            for gpus, others in product((1, 2, 8), REQUESTS):
                capacity = pool.replica_capacity(Footprint(gpus), others)
                assert (
                    0
                    <= capacity
                    <= sum(
                        node.spare.fitting(others, node.allocatable // gpus) for node in pool.nodes
                    )
                )
                if not any(model.reserved.values()):
                    assert capacity == sum(
                        node.spare.fitting(others, node.free // gpus) for node in pool.nodes
                    )


@given(events, st.sampled_from([None, *OWNERS]))
@settings(max_examples=150, deadline=None)
def test_what_nodes_have_left_equals_a_naive_count(
    history: list[tuple[str, Any]], excluding: tuple[str, str] | None
) -> None:
    fleet, model = live(history)
    for pool in fleet.pools(excluding):
        for node in pool.nodes:
            left = model.nodes[node.name].size
            for pod in model.pods.values():
                counts = pod.owner is None or pod.owner != excluding
                if pod.node == node.name and counts:
                    left = left.minus(pod.others)
            assert (node.size, node.spare) == (model.nodes[node.name].size, left)
        largest = largest_size(node.size for node in pool.nodes)
        assert pool.nodes.counts.largest_size == largest


@given(events, st.sampled_from([None, *OWNERS]))
@settings(max_examples=200, deadline=None)
def test_free_gpus_equal_a_naive_count(
    history: list[tuple[str, Any]], excluding: tuple[str, str] | None
) -> None:
    fleet, model = live(history)
    pools = fleet.pools(excluding)
    counted = count_free(model, pools, excluding)
    assert {node.name: node.free for pool in pools for node in pool.nodes} == counted
    for pool in pools:
        assert pool.total == sum(
            max(model.nodes[node.name].capacity.get(pool.resource, 0), node.allocatable)
            for node in pool.nodes
        )


def count_free(
    model: ModelFleet, pools: Sequence[Pool], excluding: tuple[str, str] | None
) -> dict[str, int]:
    """Free GPUs of each node, counted pod by pod and replica by replica."""
    pool_of = {node.name: pool for pool in pools for node in pool.nodes}
    free = {
        node.name: 0 if node.unusable else model.nodes[node.name].allocatable[pool.resource]
        for pool in pools
        for node in pool.nodes
    }
    scheduled: Counter[object] = Counter()
    for pod in model.pods.values():
        if pod.node not in pool_of or pod.owner == excluding is not None:
            continue
        pool = pool_of[pod.node]
        free[pod.node] -= pod.requests.get(pool.resource, 0)
        scheduled[pod.owner, pod.placement, pool.name, sum(pod.requests.values())] += 1
    free = {name: max(0, count) for name, count in free.items()}
    wanted = [one for of_owner in model.reserved.values() for one in of_owner]
    missing: list[tuple[Footprint, int, str]] = []
    for one in wanted:
        gpus, nodes = one.footprint.gpus_per_node, one.footprint.nodes
        if one.owner == excluding or not gpus:
            continue
        pods = min(one.replicas, 1000) * nodes
        pods -= scheduled[one.owner, one.placement, one.pool, gpus]
        missing.append((Footprint(gpus, nodes), max(0, pods) // nodes, one.pool))
        if pods > 0 and pods % nodes:
            missing.append((Footprint(gpus, pods % nodes), 1, one.pool))
    for footprint, replicas, pool_name in sorted(missing, reverse=True):
        for _ in range(replicas):
            place(free, [name for name in free if pool_of[name].name == pool_name], footprint)
    return free


def place(free: dict[str, int], nodes: Sequence[str], footprint: Footprint) -> None:
    """Take the GPUs of one replica, on the smallest node that holds it, or on several."""
    gpus = footprint.gpus_per_node
    places = sorted(
        (-(free[name] // gpus) if footprint.nodes > 1 else 0, free[name], name)
        for name in nodes
        if free[name] >= gpus
    )
    if len(places) >= footprint.nodes:
        for _, _, name in places[: footprint.nodes]:
            free[name] -= gpus


def most_groups(pods: Sequence[int], nodes: int) -> int:
    """Replicas of several nodes, taken one by one from the nodes with the most pods left."""
    left, count = sorted(pods, reverse=True), 0
    while len(left) >= nodes and left[nodes - 1] > 0:
        left = sorted([*(each - 1 for each in left[:nodes]), *left[nodes:]], reverse=True)
        count += 1
    return count
