"""Who gets the GPUs that become free, and what the others may take."""

from typing import Any

import pytest

from tests.support.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, PODS, PRIORITY_CLASSES
from tonnage.kube.protocol import ForbiddenError, InvalidError, TransientError
from tonnage.reconcile.key import Key

H100_ONLY = {"accelerators": ["h100-sxm-80gb"]}
AMD_ONLY = {"accelerators": ["mi300x"]}


def classes(cluster: Cluster, default: str = "", **values: int) -> None:
    """What `kubectl create priorityclass` does; the cluster has one of its own from the start."""
    for name, value in {"system-node-critical": 2_000_001_000, **values}.items():
        body: Any = {"metadata": {"name": name}, "value": value}
        if name == default:
            body["globalDefault"] = True
        cluster.api.put(PRIORITY_CLASSES, body)


def with_class(name: str, **spec: Any) -> Any:
    return spec_of(template={"spec": {"priorityClassName": name}}, **spec)


def apply_in_turn(cluster: Cluster, specs: dict[str, Any]) -> None:
    """Objects each a second younger than the one before."""
    for name, spec in specs.items():
        cluster.clock.advance(1)
        cluster.apply(name, spec)


def running(cluster: Cluster) -> set[str]:
    """Objects whose replicas are all there."""
    found = cluster.conditions_of_all()
    return {name for name, each in found.items() if each["Ready"][0] == "True"}


async def full(**specs: Any) -> Cluster:
    """A node of eight GPUs that somebody else holds, and objects that wait for them."""
    cluster = Cluster(MI300X)
    cluster.occupy("mi300x-0", 8)
    apply_in_turn(cluster, specs)
    await cluster.settle()
    assert running(cluster) == set()
    return cluster


# Precedence


async def test_the_oldest_goes_first_whoever_is_looked_at_first() -> None:
    cluster = await full(c=spec_of(), b=spec_of(), a=spec_of())
    cluster.occupy("mi300x-0", 7)
    for name in ("a", "b", "c"):
        await cluster.reconcile(name)
    await cluster.settle()
    assert running(cluster) == {"c"}
    cluster.occupy("mi300x-0", 6)
    await cluster.settle(["a", "b", "c"])
    assert running(cluster) == {"c", "b"}


async def test_a_higher_priority_goes_before_an_older_object() -> None:
    cluster = Cluster(MI300X)
    classes(cluster, high=100)
    cluster.occupy("mi300x-0", 8)
    apply_in_turn(cluster, {"old": spec_of(), "young": with_class("high")})
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    await cluster.settle()
    assert running(cluster) == {"young"}


async def test_without_a_class_the_clusters_default_counts() -> None:
    cluster = Cluster(MI300X)
    classes(cluster, default="usual", usual=50, low=10)
    cluster.occupy("mi300x-0", 8)
    apply_in_turn(cluster, {"old": with_class("low"), "young": spec_of()})
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    await cluster.settle()
    assert running(cluster) == {"young"}


async def test_who_comes_new_does_not_pass_those_who_wait() -> None:
    cluster = await full(old=spec_of())
    apply_in_turn(cluster, {"new": spec_of()})
    cluster.occupy("mi300x-0", 7)
    await cluster.reconcile("new")
    assert cluster.conditions("new")["Placed"] == ("False", "InsufficientGPUs")
    await cluster.settle()
    assert running(cluster) == {"old"}


async def test_replicas_that_are_there_are_never_claimed_by_those_who_wait() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    apply_in_turn(cluster, {"waits": spec_of(replicas=2), "runs": spec_of(replicas=2)})
    await cluster.reconcile("runs")
    await cluster.reconcile("waits")
    before = cluster.deployment("runs-mi300x")
    await cluster.reconcile("runs")
    assert cluster.deployment("runs-mi300x") == before
    assert cluster.conditions("runs")["Placed"] == ("True", "PoolChosen")
    await cluster.settle()
    assert running(cluster) == {"runs"}


async def test_a_part_of_the_replicas_claims_the_rest() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 4})
    cluster.occupy("mi300x-0", 3)
    apply_in_turn(cluster, {"old": spec_of(replicas=3), "new": spec_of()})
    await cluster.settle(["old", "new"])
    assert len(cluster.pods("old")) == 1
    cluster.occupy("mi300x-0", 1)
    await cluster.reconcile("new")
    await cluster.settle()
    assert running(cluster) == {"old"}


# What is left to the others


async def test_a_small_one_runs_in_what_the_elder_cannot_use() -> None:
    eight = spec_of("llama-3.1-405b-fp8", quantization="fp8")
    cluster = await full(big=eight)
    cluster.occupy("mi300x-0", 7)
    await cluster.settle()
    assert cluster.conditions("big")["Placed"][0] == "False"
    apply_in_turn(cluster, {"small": spec_of()})
    await cluster.settle()
    assert running(cluster) == {"small"}


async def test_an_elder_that_can_use_another_pool_only_keeps_nobody_waiting() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.occupy("h100-0", 8, "nvidia.com/gpu")
    cluster.occupy("mi300x-0", 8)
    apply_in_turn(
        cluster, {"old": spec_of(placement=H100_ONLY), "new": spec_of(placement=AMD_ONLY)}
    )
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    await cluster.settle(["new", "old"])
    assert running(cluster) == {"new"}


async def test_an_elder_takes_one_of_two_pools_and_leaves_the_other() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 1}, {**H100, "gpusPerNode": 1})
    cluster.occupy("h100-0", 1, "nvidia.com/gpu")
    cluster.occupy("mi300x-0", 1)
    apply_in_turn(cluster, {"old": spec_of(), "new": spec_of()})
    await cluster.settle()
    cluster.free("h100-0")
    cluster.free("mi300x-0")
    await cluster.reconcile("new")
    await cluster.settle()
    assert running(cluster) == {"old", "new"}
    assert cluster.deployments() == ["new-h100-sxm-80gb", "old-mi300x"]


async def test_an_elder_that_cannot_be_looked_at_keeps_nobody_waiting() -> None:
    cluster = await full(old=spec_of(), new=spec_of())
    cluster.occupy("mi300x-0", 7)
    cluster.api.fail_next("list", TransientError("503"), kind=PODS)
    await cluster.settle(["old", "new"])
    assert len(running(cluster)) == 1
    cluster.free("mi300x-0")
    await cluster.settle()
    assert running(cluster) == {"old", "new"}


async def test_an_elder_that_is_refused_keeps_nobody_waiting() -> None:
    cluster = await full(old=spec_of(), new=spec_of())
    cluster.occupy("mi300x-0", 7)
    cluster.api.fail_next("apply", InvalidError("422"))
    await cluster.settle(["old", "new"])
    assert running(cluster) == {"new"}


async def test_an_elder_that_is_deleted_keeps_nobody_waiting() -> None:
    cluster = await full(old=spec_of(), new=spec_of())
    cluster.delete("old")
    cluster.occupy("mi300x-0", 7)
    await cluster.settle(["new", "old"])
    assert running(cluster) == {"new"}


# What outlives the operator


async def test_the_order_outlives_the_operator() -> None:
    cluster = Cluster(MI300X)
    classes(cluster, high=100)
    cluster.occupy("mi300x-0", 8)
    apply_in_turn(cluster, {"c": spec_of(), "b": with_class("high"), "a": spec_of()})
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    cluster.start_operator()
    assert cluster.fleet.waiting_keys() == [Key(NAMESPACE, name) for name in ("b", "c", "a")]
    for name in ("a", "c", "b"):
        await cluster.reconcile(name)
    await cluster.settle()
    assert running(cluster) == {"b"}


@pytest.mark.parametrize("status", [{"conditions": 7}, {"rebalance": {"pool": 1}}, None])
async def test_a_status_of_another_version_claims_nothing(status: Any) -> None:
    cluster = await full(old=spec_of())
    body = cluster.inference_deployment("old")
    cluster.api.put(INFERENCE_DEPLOYMENTS, {**body, "status": status})
    cluster.start_operator()
    assert cluster.fleet.waiting_keys() == []


# PriorityClasses


async def test_an_unknown_priority_class_is_refused_with_those_there_are() -> None:
    cluster = Cluster(MI300X)
    classes(cluster, high=100)
    cluster.apply("llama", with_class("hgih"))
    await cluster.settle()
    assert cluster.conditions()["Accepted"] == ("False", "InvalidSpec")
    assert cluster.message("Accepted") == (
        "spec.template.spec.priorityClassName: there is no PriorityClass 'hgih';"
        " create it, or name one of high, system-node-critical"
    )
    assert cluster.deployments() == []
    classes(cluster, hgih=1)
    await cluster.wait(30)
    assert running(cluster) == {"llama"}


async def test_who_may_not_read_priority_classes_serves_all_the_same() -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next("list", ForbiddenError("403"), kind=PRIORITY_CLASSES, times=99)
    cluster.apply("llama", with_class("high"))
    await cluster.settle()
    assert running(cluster) == {"llama"}


async def test_a_hundred_objects_on_room_for_sixty_leave_forty_that_say_so() -> None:
    cluster = Cluster({**MI300X, "count": 12, "gpusPerNode": 5})
    names = [f"llama-{number:02}" for number in range(100)]
    for name in reversed(names):
        cluster.apply(name, spec_of())
    await cluster.settle()
    placed = [cluster.conditions(name)["Placed"] for name in names]
    assert placed.count(("True", "PoolChosen")) == 60
    assert placed.count(("False", "InsufficientGPUs")) == 40
    assert {cluster.status(name)["desiredReplicas"] for name in names} == {1}
