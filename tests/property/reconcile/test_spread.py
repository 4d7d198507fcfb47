"""In any fleet and for any spec, a spread stays within its limits and follows the rules."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tonnage.api.names import ANNOTATION_PLACEMENT
from tonnage.kube.kinds import DEPLOYMENTS, PODS, SERVICES

pytestmark = pytest.mark.usefixtures("claims_stand_in_status")

POOLS = {"mi300x": MI300X, "h100": H100, "l40s": L40S}
BY_COST = ("l40s", "mi300x", "h100")
GPUS = {"mi300x": 8, "h100": 8, "l40s": 4}
NAMES = {
    "amd-mi300x": "mi300x",
    "nvidia-h100-sxm-80gb": "h100",
    "nvidia-l40s": "l40s",
}

pools = st.sampled_from(sorted(POOLS))
steps = st.one_of(
    st.tuples(st.just("occupy"), pools, st.integers(0, 8)),
    st.tuples(st.just("replicas"), st.none(), st.integers(0, 12)),
    st.tuples(st.just("policy"), st.none(), st.sampled_from(["Never", "WhenShort", "ByCost"])),
    st.tuples(st.just("leave"), pools, st.none()),
    st.tuples(st.just("join"), pools, st.none()),
    st.tuples(st.just("forget"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 11, 60])),
)


def act(cluster: Cluster, wanted: dict[str, Any], step: tuple[str, Any, Any]) -> None:
    """What somebody does; nodes that leave take their pods with them."""
    what, pool, value = step
    match what:
        case "occupy":
            cluster.free(f"{pool}-0")
            resource = "amd.com/gpu" if pool == "mi300x" else "nvidia.com/gpu"
            used = sum(where(pod) == pool for pod in cluster.pods())
            gpus = min(value, GPUS[pool] - used)
            if gpus > 0:
                cluster.occupy(f"{pool}-0", gpus, resource)
        case "leave":
            cluster.free(f"{pool}-0")
            cluster.leave(pool)
            for pod in cluster.pods():
                if where(pod) == pool:
                    cluster.api.remove(PODS, NAMESPACE, pod["metadata"]["name"])
            cluster.watch()
        case "join":
            cluster.join(**POOLS[pool])
        case "forget":
            cluster.start_operator()
        case "wait":
            cluster.clock.advance(value * 60)
        case _:
            wanted[what] = value
            cluster.apply("llama", spec(wanted))


def spec(wanted: Mapping[str, Any]) -> dict[str, Any]:
    placement = {"spread": {"policy": wanted["policy"]}}
    return spec_of(replicas=wanted["replicas"], placement=placement)


def where(pod: Mapping[str, Any]) -> str:
    return str(pod["spec"].get("nodeName") or "").partition("-")[0]


def state(cluster: Cluster) -> dict[str, int]:
    """Replicas by pool, as the Deployments have them."""
    return {
        NAMES[place(body)["pool"]]: body["spec"]["replicas"]
        for body in cluster.api.objects(DEPLOYMENTS)
        if body["spec"]["replicas"]
    }


def place(deployment: Mapping[str, Any]) -> dict[str, Any]:
    annotation: dict[str, Any] = json.loads(
        deployment["metadata"]["annotations"][ANNOTATION_PLACEMENT]
    )
    return annotation


def check(cluster: Cluster, wanted: Mapping[str, Any]) -> None:
    """What holds whenever all is at rest."""
    split, status = state(cluster), cluster.status()
    assert sum(split.values()) <= wanted["replicas"]
    firsts = [one for one in cluster.api.objects(DEPLOYMENTS) if not place(one).get("beside")]
    assert len(firsts) <= 1
    bound = [pod for pod in cluster.pods() if pod["spec"].get("nodeName")]
    if cluster.conditions()["Ready"] == ("True", "ReplicasReady"):
        assert sum(split.values()) == len(bound) == wanted["replicas"]
        assert status["readyReplicas"] == wanted["replicas"]
        reported = {NAMES[one["pool"]]: one["replicas"] for one in status["placements"]}
        assert reported == split
        services = {body["metadata"]["name"] for body in cluster.api.objects(SERVICES)}
        each = {body["metadata"]["name"] for body in cluster.api.objects(DEPLOYMENTS)}
        assert services == {"llama", *(each if len(split) > 1 else ())}
    if wanted["policy"] == "Never":
        assert len(status["placements"]) <= 2


async def play(history: list[tuple[str, Any, Any]]) -> None:
    cluster = Cluster(*POOLS.values())
    wanted: dict[str, Any] = {"replicas": 4, "policy": "WhenShort"}
    cluster.apply("llama", spec(wanted))
    await cluster.settle()
    for step in history:
        before, kept = state(cluster), {pod["metadata"]["name"] for pod in cluster.pods()}
        asked = dict(wanted)
        act(cluster, wanted, step)
        await cluster.settle()
        check(cluster, wanted)
        if step[0] in ("forget", "join") or (step[0] == "occupy" and wanted == asked):
            assert kept <= {pod["metadata"]["name"] for pod in cluster.pods()}, (before, step)
        at_rest = state(cluster)
        await cluster.resync()
        assert state(cluster) == at_rest


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=8))
def test_a_spread_is_bounded_and_converges(history: list[tuple[str, Any, Any]]) -> None:
    asyncio.run(play(history))


async def give_back(
    capacities: Mapping[str, int], many: int, few: int
) -> tuple[dict[str, int], ...]:
    cluster = Cluster(*POOLS.values())
    for pool, capacity in capacities.items():
        act(cluster, {}, ("occupy", pool, GPUS[pool] - capacity))
    wanted = {"replicas": many, "policy": "ByCost"}
    cluster.apply("llama", spec(wanted))
    await cluster.settle()
    before = state(cluster)
    cluster.apply("llama", spec({**wanted, "replicas": few}))
    await cluster.settle()
    return before, state(cluster)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.fixed_dictionaries({pool: st.integers(0, 4) for pool in POOLS}),
    st.integers(2, 12),
    st.integers(1, 11),
)
def test_by_cost_the_cheapest_pools_fill_first_and_the_most_expensive_empty_first(
    capacities: dict[str, int], many: int, few: int
) -> None:
    before, after = asyncio.run(give_back(capacities, many, min(few, many)))
    assert before == filled(capacities, many)
    assert after == filled(capacities, min(few, many)) or sum(capacities.values()) == 0


def filled(capacities: Mapping[str, int], replicas: int) -> dict[str, int]:
    """The pools filled one after the other."""
    by_pool = {}
    for pool in BY_COST:
        taken = min(capacities[pool], replicas)
        replicas -= taken
        if taken:
            by_pool[pool] = taken
    return by_pool
