"""A batch placed together where one after another is not the best."""

import sys
from decimal import Decimal
from typing import Any

import pytest

from tests.support.gpu_nodes import Raw, amd_node, nvidia_node, snapshot_of
from tests.support.placing import CATALOG, LLAMA_8B, LLAMA_70B, spec_of
from tonnage.api.inference import PlacementSpec, PoolSelector
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.checkpoint.model import Checkpoint
from tonnage.fleet.model import DeclaredPool, FleetSnapshot
from tonnage.fleet.pools import build_pools
from tonnage.placement.assignment import Assignment, assign
from tonnage.placement.best_options import find_best_options
from tonnage.placement.integer_program import Limit, SolverMissingError, minimise
from tonnage.placement.memory import Memory
from tonnage.placement.model import Request
from tonnage.placement.pinning import pin

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


def wish(name: str, checkpoint: Checkpoint = LLAMA_8B, **spec: Any) -> Request:
    return Request(("chat", name), spec_of(**{"replicas": 1, **spec}), checkpoint)


def pools_taken(assignment: Assignment) -> tuple[dict[str, str], dict[str, str]]:
    """Before and after, the pool of each object that is placed whole."""
    before, after = (
        {owner[1]: option.pool.name for owner, option in batch.whole.items()}
        for batch in (assignment.before, assignment.after)
    )
    return before, after


def test_an_early_object_leaves_the_gpu_that_a_later_one_needs_more() -> None:
    requests = [wish("small"), wish("large", LLAMA_70B)]
    found = assign(requests, fleet_of(amd_node("a", gpus=1), nvidia_node("n")), CATALOG)
    before, after = pools_taken(found)
    assert before == {"small": "amd", "large": "nvidia"}
    assert after == {"small": "nvidia", "large": "amd"}
    assert found.after.cost_per_hour == Decimal(5) < found.before.cost_per_hour
    assert found.pins[("chat", "small")].accelerators == [NVIDIA]


def test_the_answer_is_what_the_sequence_does_once_the_pins_are_set() -> None:
    requests = [wish(f"small-{number}") for number in range(3)] + [wish("large", LLAMA_70B)]
    fleet = fleet_of(amd_node("a", gpus=2), nvidia_node("n"))
    found = assign(requests, fleet, CATALOG)
    pinned = [
        Request(
            one.owner,
            one.spec.model_copy(
                update={"placement": found.pins.get(one.owner, one.spec.placement)}
            ),
            one.checkpoint,
        )
        for one in requests
    ]
    again = assign(pinned, fleet, CATALOG)
    assert again.before.cost_per_hour == found.after.cost_per_hour
    assert again.pins == {}


def test_an_object_that_runs_nowhere_else_gets_its_place() -> None:
    only_amd = wish("picky", placement={"accelerators": [AMD]})
    found = assign(
        [wish("first"), only_amd], fleet_of(amd_node("a", gpus=1), nvidia_node("n")), CATALOG
    )
    before, after = pools_taken(found)
    assert before == {"first": "amd"}
    assert after == {"first": "nvidia", "picky": "amd"}


@pytest.mark.parametrize(
    ("what", "spec"),
    [
        ("another policy", {"placement": {"policy": "FewestGPUs"}}),
        ("tolerations", {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}),
    ],
)
def test_who_asks_for_more_than_low_cost_stays_where_the_sequence_puts_it(
    what: str, spec: dict[str, Any]
) -> None:
    requests = [wish("first", **spec), wish("large", LLAMA_70B)]
    fleet = fleet_of(amd_node("a", gpus=1), nvidia_node("n"))
    found = assign(requests, fleet, CATALOG)
    before, after = pools_taken(found)
    assert after == before, what
    assert found.pins == {}


def test_nothing_is_offered_where_nothing_is_better() -> None:
    found = assign([wish("one"), wish("two")], fleet_of(amd_node("a")), CATALOG)
    assert found.after is found.before
    assert found.pins == {}


def test_a_replica_is_not_spread_over_nodes() -> None:
    nodes = [amd_node(f"a{number}", gpus=1) for number in range(4)]
    large = wish("large", LLAMA_70B, workload={"concurrency": 400}, placement={})
    whole = find_best_options(
        [large], build_pools(fleet_of(*nodes), CATALOG), CATALOG, {}, Memory()
    )
    assert whole.taken == {}
    node = amd_node("a", gpus=4)
    whole = find_best_options([large], build_pools(fleet_of(node), CATALOG), CATALOG, {}, Memory())
    assert whole.taken[large.owner].parallelism.gpus > 1


def test_a_pin_names_a_label_where_two_pools_have_the_same_accelerator() -> None:
    same = [
        declared("a", "1", "kubernetes.io/hostname", "a", team="chat", tier="gold"),
        declared("b", "2", "kubernetes.io/hostname", "b", team="chat", tier="iron"),
    ]
    fleet = snapshot_of([amd_node("a"), amd_node("b")], declared_pools=tuple(same))
    pools = {pool.name: pool for pool in build_pools(fleet, CATALOG)}
    asked = PlacementSpec(pool_selector=PoolSelector(match_labels={"team": "chat"}))
    pinned = pin(asked, pools["b"], pools.values())
    assert pinned.accelerators == [AMD]
    assert pinned.pool_selector is not None
    assert pinned.pool_selector.match_labels == {"team": "chat", "tier": "iron"}
    alone = pin(asked, pools["b"], [pools["b"]])
    assert alone.pool_selector == asked.pool_selector


def test_goals_are_pursued_one_after_the_other() -> None:
    one_of_three = Limit({0: 1, 1: 1, 2: 1}, 1)
    most, cost = {0: -1.0, 1: -1.0, 2: -1.0}, {0: 5.0, 1: 3.0, 2: 4.0}
    assert minimise(3, [one_of_three], [most, cost]).taken == {1}
    assert minimise(3, [one_of_three], [cost]).taken == frozenset()
    assert minimise(3, [one_of_three], [most, cost]).bounds == (-1, 3)
    assert minimise(0, [], [{}]).taken == frozenset()


def test_without_the_solver_it_is_told_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    with pytest.raises(SolverMissingError, match=r"pip install 'tonnage\[optimize\]'"):
        minimise(1, [], [{0: 1.0}])
