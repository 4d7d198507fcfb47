"""A batch placed together where placing in sequence is not optimal."""

import sys
from decimal import Decimal
from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import Raw, amd_node, nvidia_node, snapshot_of
from tests.support.fleets.placing import CATALOG, LLAMA_8B, LLAMA_70B, spec_of
from tonnage.api.placement import PlacementSpec, PoolSelector
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.checkpoint.model import Checkpoint
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import DeclaredPool, FleetSnapshot
from tonnage.placement.batches.assignment import Assignment, assign
from tonnage.placement.batches.best_options import find_best_options
from tonnage.placement.batches.integer_program import Limit, SolverMissingError, minimise
from tonnage.placement.cache import PlacementCache
from tonnage.placement.filters.screening import pin
from tonnage.placement.model import Request

AMD, NVIDIA = "mi300x", "h100-sxm-80gb"


def declared(name: str, price: str, key: str, value: str, **labels: str) -> DeclaredPool:
    spec = {"nodeSelector": {key: value}, "costPerGPUHour": price}
    return DeclaredPool(name, labels, AcceleratorPoolSpec.model_validate(spec))


PRICES = (
    declared("amd", "2", "amd.com/gpu.device-id", "74a1"),
    declared("nvidia", "3", "nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"),
)


def fleet_of(*nodes: Raw) -> FleetSnapshot:
    return snapshot_of(list(nodes), declared_pools=PRICES)


def request(name: str, checkpoint: Checkpoint = LLAMA_8B, **spec: Any) -> Request:
    return Request(("chat", name), spec_of(**{"replicas": 1, **spec}), checkpoint)


def pools_taken(assignment: Assignment) -> tuple[dict[str, str], dict[str, str]]:
    """Before and after, the pool of each object that is placed whole."""
    before, after = (
        {owner[1]: option.pool.name for owner, option in batch.fully_placed.items()}
        for batch in (assignment.before, assignment.after)
    )
    return before, after


def test_an_early_object_leaves_a_gpu_to_a_later_one_that_needs_it_more() -> None:
    requests = [request("small"), request("large", LLAMA_70B)]
    assignment = assign(requests, fleet_of(amd_node("a", gpus=1), nvidia_node("n")), CATALOG)
    before, after = pools_taken(assignment)
    assert before == {"small": "amd", "large": "nvidia"}
    assert after == {"small": "nvidia", "large": "amd"}
    assert assignment.after.cost_per_hour == Decimal(5) < assignment.before.cost_per_hour
    assert assignment.pins[("chat", "small")].accelerators == [NVIDIA]


def test_the_result_is_the_sequence_with_the_pins() -> None:
    requests = [request(f"small-{number}") for number in range(3)] + [request("large", LLAMA_70B)]
    fleet = fleet_of(amd_node("a", gpus=2), nvidia_node("n"))
    assignment = assign(requests, fleet, CATALOG)
    pinned = [
        Request(
            one.owner,
            one.spec.model_copy(
                update={"placement": assignment.pins.get(one.owner, one.spec.placement)}
            ),
            one.checkpoint,
        )
        for one in requests
    ]
    again = assign(pinned, fleet, CATALOG)
    assert again.before.cost_per_hour == assignment.after.cost_per_hour
    assert again.pins == {}


def test_an_object_that_fits_one_pool_only_gets_its_gpus() -> None:
    only_amd = request("picky", placement={"accelerators": [AMD]})
    assignment = assign(
        [request("first"), only_amd], fleet_of(amd_node("a", gpus=1), nvidia_node("n")), CATALOG
    )
    before, after = pools_taken(assignment)
    assert before == {"first": "amd"}
    assert after == {"first": "nvidia", "picky": "amd"}


@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("another policy", {"placement": {"policy": "FewestGPUs"}}),
        ("tolerations", {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}),
    ],
)
def test_objects_with_other_requirements_stay_where_the_sequence_places_them(
    what: str, spec: dict[str, Any]
) -> None:
    requests = [request("first", **spec), request("large", LLAMA_70B)]
    fleet = fleet_of(amd_node("a", gpus=1), nvidia_node("n"))
    assignment = assign(requests, fleet, CATALOG)
    before, after = pools_taken(assignment)
    assert after == before, what
    assert assignment.pins == {}


def test_no_pins_without_a_better_assignment() -> None:
    assignment = assign([request("one"), request("two")], fleet_of(amd_node("a")), CATALOG)
    assert assignment.after is assignment.before
    assert assignment.pins == {}


def test_a_replica_is_not_spread_over_nodes() -> None:
    nodes = [amd_node(f"a{number}", gpus=1) for number in range(4)]
    large = request("large", LLAMA_70B, workload={"concurrency": 400}, placement={})
    best = find_best_options(
        [large], build_pools(fleet_of(*nodes), CATALOG), CATALOG, {}, PlacementCache()
    )
    assert best.taken == {}
    node = amd_node("a", gpus=4)
    best = find_best_options(
        [large], build_pools(fleet_of(node), CATALOG), CATALOG, {}, PlacementCache()
    )
    assert best.taken[large.owner].parallelism.gpus > 1


def test_a_pin_names_a_label_where_two_pools_have_the_same_accelerator() -> None:
    same = [
        declared("a", "1", "kubernetes.io/hostname", "a", team="chat", tier="gold"),
        declared("b", "2", "kubernetes.io/hostname", "b", team="chat", tier="iron"),
    ]
    fleet = snapshot_of([amd_node("a"), amd_node("b")], declared_pools=tuple(same))
    pools = {pool.name: pool for pool in build_pools(fleet, CATALOG)}
    placement = PlacementSpec(pool_selector=PoolSelector(match_labels={"team": "chat"}))
    pinned = pin(placement, pools["b"], pools.values())
    assert pinned.accelerators == [AMD]
    assert pinned.pool_selector is not None
    assert pinned.pool_selector.match_labels == {"team": "chat", "tier": "iron"}
    only_pool = pin(placement, pools["b"], [pools["b"]])
    assert only_pool.pool_selector == placement.pool_selector


def test_goals_are_pursued_one_after_the_other() -> None:
    one_of_three = Limit({0: 1, 1: 1, 2: 1}, 1)
    most, cost = {0: -1.0, 1: -1.0, 2: -1.0}, {0: 5.0, 1: 3.0, 2: 4.0}
    assert minimise(3, [one_of_three], [most, cost]).taken == {1}
    assert minimise(3, [one_of_three], [cost]).taken == frozenset()
    assert minimise(3, [one_of_three], [most, cost]).bounds == (-1, 3)
    assert minimise(0, [], [{}]).taken == frozenset()


def test_a_missing_solver_is_reported_with_the_install_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(SolverMissingError, match=r"pip install 'tonnage\[optimize\]'"):
        minimise(1, [], [{0: 1.0}])
