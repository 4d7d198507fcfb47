"""In any order of events, no GPU is promised twice and precedence is kept."""

import random

import pytest

from tests.support.fleets.histories import run_history
from tests.support.fleets.promises import read_promises
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, NODES, PRIORITY_CLASSES
from tonnage.reconcile.fleet_state import FleetState


@pytest.mark.parametrize("seed", [*range(12), 19, 514])
async def test_no_gpu_is_reserved_twice_in_a_random_history(seed: int) -> None:
    verdict = await run_history(seed)
    assert verdict.double_bookings == []
    assert verdict.restless == 0


async def test_without_reservations_gpus_are_assigned_twice_and_the_check_detects_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(FleetState, "reserve", lambda *_: None)
    verdicts = [await run_history(seed) for seed in (1, 9)]
    assert any("overpromised" in booking for one in verdicts for booking in one.double_bookings)


async def test_a_hundred_objects_at_once_on_capacity_for_sixty() -> None:
    chance = random.Random(0)
    cluster = Cluster({**MI300X, "count": 12, "gpusPerNode": 5})
    urgent = {"metadata": {"name": "urgent"}, "value": 1000}
    cluster.api.put(PRIORITY_CLASSES, urgent)
    names = [f"llama-{number:02}" for number in range(100)]
    by_age = chance.sample(names, len(names))
    hurried = {name for name in by_age if chance.random() < 0.1}
    for name in by_age:
        template = {"spec": {"priorityClassName": "urgent"}} if name in hurried else {}
        cluster.apply(name, spec_of(template=template))
        cluster.clock.advance(chance.choice((0, 1)))
    for name in chance.sample(names, len(names)):  # news come in any order
        await cluster.reconcile(name)
        assert promised(cluster) <= 60
    await cluster.settle()
    running = ready(cluster)
    waiting = [name for name in names if name not in running]
    assert len(running) == 60
    assert {cluster.conditions(name)["Placed"] for name in waiting} == {
        ("False", "InsufficientGPUs")
    }
    for name in chance.sample(sorted(running), 5):
        cluster.delete(name)
    await cluster.settle()
    assert ready(cluster) - running == set(first_in_line(cluster, waiting)[:5])


def promised(cluster: Cluster) -> int:
    """GPUs that the stored Deployments promise."""
    promises = read_promises(
        cluster.api.objects(DEPLOYMENTS),
        cluster.api.objects(INFERENCE_DEPLOYMENTS),
        cluster.api.objects(NODES),
    )
    return sum(promise.replicas * promise.gpus for promise in promises)


def ready(cluster: Cluster) -> set[str]:
    all_conditions = cluster.conditions_of_all().items()
    return {name for name, conditions in all_conditions if conditions["Ready"][0] == "True"}


def first_in_line(cluster: Cluster, names: list[str]) -> list[str]:
    """By priority, then age, then name."""

    def order(name: str) -> tuple[bool, str, str]:
        body = cluster.inference_deployment(name)
        hurried = bool(body["spec"].get("template", {}).get("spec"))
        return not hurried, body["metadata"]["creationTimestamp"], name

    return sorted(names, key=order)
