"""For any pods and reservations, no GPU is promised twice."""

from collections import Counter
from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fleets.gpu_nodes import H100, amd_node, nvidia_node, snapshot_of
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import DeclaredPool, FleetSnapshot, GpuPod, Pool, Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.fleet.pools.declared import read_declared_pool

CATALOG = load_catalog()
POOL = "nvidia-h100-sxm-80gb"
NODES = [nvidia_node(f"n{number}") for number in range(4)] + [amd_node("a0")]
TEAM = read_declared_pool({"metadata": {"name": "team"}, "spec": {"nodeSelector": {"t": "1"}}})

OWNERS = st.sampled_from([("chat", "one"), ("chat", "two"), ("code", "one")])
PODS = st.lists(
    st.builds(
        GpuPod,
        uid=st.uuids().map(str),
        node=st.sampled_from([None, "n0", "n1", "n2", "n3", "gone"]),
        requests=st.integers(0, 9).map(lambda gpus: {"nvidia.com/gpu": gpus}),
        owner=st.none() | OWNERS,
        placement=st.just("h100"),
    ),
    max_size=12,
)
FOOTPRINTS = st.builds(Footprint, st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 1, 2, 3]))
RESERVATIONS = st.lists(
    st.builds(
        Reservation,
        owner=OWNERS,
        placement=st.just("h100"),
        pool=st.just(POOL),
        footprint=FOOTPRINTS,
        replicas=st.integers(0, 6),
    ),
    max_size=6,
    unique_by=lambda reservation: (reservation.owner, reservation.placement),
)


def h100_pool(snapshot: FleetSnapshot) -> Pool:
    return next(pool for pool in build_pools(snapshot, CATALOG) if pool.name == POOL)


@given(PODS, RESERVATIONS)
@settings(max_examples=150, deadline=None)
def test_reservations_never_exceed_the_free_gpus(
    pods: list[GpuPod], reservations: list[Reservation]
) -> None:
    pool = h100_pool(snapshot_of(NODES, pods=tuple(pods), reservations=tuple(reservations)))
    used: Counter[str] = Counter()
    for pod in pods:
        used[pod.node or ""] += pod.requests["nvidia.com/gpu"]
    for node in pool.nodes:
        assert 0 <= node.free <= max(0, node.allocatable - used[node.name])
    for gpus, count in product((1, 2, 4, 8), (1, 2, 3)):
        footprint = Footprint(gpus, count)
        assert pool.replica_capacity(footprint) * footprint.gpus <= pool.free


@given(PODS, RESERVATIONS, FOOTPRINTS, st.integers(0, 6))
@settings(max_examples=300, deadline=None)
def test_unscheduled_replicas_reserve_gpus_up_to_the_capacity(
    pods: list[GpuPod], others: list[Reservation], footprint: Footprint, replicas: int
) -> None:
    """One more reservation, smaller than all others so that it is packed last."""
    others = [other for other in others if other.footprint.gpus_per_node > footprint.gpus_per_node]
    mine = Reservation(("late", "comer"), "h100", POOL, footprint, replicas)
    before = h100_pool(snapshot_of(NODES, pods=tuple(pods), reservations=tuple(others)))
    after = h100_pool(snapshot_of(NODES, pods=tuple(pods), reservations=(*others, mine)))
    placed = min(replicas, before.replica_capacity(footprint))
    assert before.free - after.free == placed * footprint.gpus
    assert before.replica_capacity(footprint) - after.replica_capacity(footprint) == placed


@given(PODS, RESERVATIONS, st.randoms(use_true_random=False))
@settings(max_examples=60, deadline=None)
def test_the_order_of_events_does_not_matter(
    pods: list[GpuPod], reservations: list[Reservation], random: object
) -> None:
    nodes, shuffled_pods, shuffled = list(NODES), list(pods), list(reservations)
    for items in (nodes, shuffled_pods, shuffled):
        random.shuffle(items)  # type: ignore[attr-defined]  # hypothesis types it as object
    assert build_pools(
        snapshot_of(nodes, pods=tuple(shuffled_pods), reservations=tuple(shuffled)), CATALOG
    ) == build_pools(
        snapshot_of(NODES, pods=tuple(pods), reservations=tuple(reservations)), CATALOG
    )


@given(st.lists(st.sampled_from(["plain", "team", "cordoned", "cpu"]), max_size=8))
@settings(max_examples=60, deadline=None)
def test_every_gpu_node_is_in_exactly_one_pool(kinds: list[str]) -> None:
    makers = {
        "plain": lambda name: nvidia_node(name),
        "team": lambda name: nvidia_node(name, H100 | {"t": "1"}),
        "cordoned": lambda name: nvidia_node(name, cordoned=True),
        "cpu": lambda name: nvidia_node(name, {}, gpus=0),
    }
    nodes = [makers[kind](f"n{number}") for number, kind in enumerate(kinds)]
    declared: tuple[DeclaredPool, ...] = (TEAM,) if TEAM else ()
    pools = build_pools(snapshot_of(nodes, declared_pools=declared), CATALOG)
    memberships = Counter(node.name for pool in pools for node in pool.nodes)
    assert set(memberships.values()) <= {1}
    assert len(memberships) == sum(kind != "cpu" for kind in kinds)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8) | st.floats(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=5,
)
KEYS = st.sampled_from(
    ["name", "labels", "taints", "conditions", "capacity", "allocatable", "containers", "phase"]
)
PARTS = st.dictionaries(KEYS, JSON, max_size=4) | JSON
OBJECTS = st.fixed_dictionaries({}, optional={"metadata": PARTS, "spec": PARTS, "status": PARTS})


@given(OBJECTS)
@settings(max_examples=100, deadline=None)
def test_any_object_is_read_without_an_error(obj: dict[str, object]) -> None:
    build_pools(FleetSnapshot((read_node(obj),)), CATALOG)
    read_gpu_pod(obj)
