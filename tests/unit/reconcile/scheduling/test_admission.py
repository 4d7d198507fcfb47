"""Which object gets the GPUs that become free, and what the others may take."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, PODS, PRIORITY_CLASSES
from tonnage.kube.protocol import ForbiddenError, InvalidError, TransientError
from tonnage.reconcile.key import Key

H100_ONLY = {"accelerators": ["h100-sxm-80gb"]}
AMD_ONLY = {"accelerators": ["mi300x"]}


def classes(cluster: Cluster, default: str = "", **values: int) -> None:
    """What `kubectl create priorityclass` does; the cluster has one class from the start."""
    for name, value in {"system-node-critical": 2_000_001_000, **values}.items():
        body: Any = {"metadata": {"name": name}, "value": value}
        if name == default:
            body["globalDefault"] = True
        cluster.api.put(PRIORITY_CLASSES, body)


def with_class(name: str, **spec: Any) -> Any:
    return spec_of(template={"spec": {"priorityClassName": name}}, **spec)


def apply_in_order(cluster: Cluster, specs: dict[str, Any]) -> None:
    """Apply the objects, each one second after the one before."""
    for name, spec in specs.items():
        cluster.clock.advance(1)
        cluster.apply(name, spec)


def running(cluster: Cluster) -> set[str]:
    """Objects whose replicas are all ready."""
    by_name = cluster.conditions_of_all()
    return {name for name, each in by_name.items() if each["Ready"][0] == "True"}


async def full(**specs: Any) -> Cluster:
    """A node of eight GPUs that foreign pods hold, and objects that wait for them."""
    cluster = Cluster(MI300X)
    cluster.occupy("mi300x-0", 8)
    apply_in_order(cluster, specs)
    await cluster.settle()
    assert running(cluster) == set()
    return cluster


# Precedence


async def test_the_oldest_goes_first_in_any_order_of_reconciles() -> None:
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
    apply_in_order(cluster, {"old": spec_of(), "young": with_class("high")})
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    await cluster.settle()
    assert running(cluster) == {"young"}


async def test_without_a_class_the_clusters_default_counts() -> None:
    cluster = Cluster(MI300X)
    classes(cluster, default="usual", usual=50, low=10)
    cluster.occupy("mi300x-0", 8)
    apply_in_order(cluster, {"old": with_class("low"), "young": spec_of()})
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    await cluster.settle()
    assert running(cluster) == {"young"}


async def test_a_new_object_does_not_pass_a_waiting_one() -> None:
    cluster = await full(old=spec_of())
    apply_in_order(cluster, {"new": spec_of()})
    cluster.occupy("mi300x-0", 7)
    await cluster.reconcile("new")
    assert cluster.conditions("new")["Placed"] == ("False", "InsufficientGPUs")
    await cluster.settle()
    assert running(cluster) == {"old"}


async def test_running_replicas_are_never_claimed_by_waiting_objects() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 2})
    apply_in_order(cluster, {"waits": spec_of(replicas=2), "runs": spec_of(replicas=2)})
    await cluster.reconcile("runs")
    await cluster.reconcile("waits")
    before = cluster.deployment("runs-mi300x")
    await cluster.reconcile("runs")
    assert cluster.deployment("runs-mi300x") == before
    assert cluster.conditions("runs")["Placed"] == ("True", "PoolChosen")
    await cluster.settle()
    assert running(cluster) == {"runs"}


async def test_an_object_with_a_part_of_its_replicas_claims_the_rest() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 4})
    cluster.occupy("mi300x-0", 3)
    apply_in_order(cluster, {"old": spec_of(replicas=3), "new": spec_of()})
    await cluster.settle(["old", "new"])
    assert len(cluster.pods("old")) == 1
    cluster.occupy("mi300x-0", 1)
    await cluster.reconcile("new")
    await cluster.settle()
    assert running(cluster) == {"old"}


# What is left to the others


async def test_a_small_object_runs_in_what_an_older_one_cannot_use() -> None:
    eight = spec_of("llama-3.1-405b-fp8", quantization="fp8")
    cluster = await full(big=eight)
    cluster.occupy("mi300x-0", 7)
    await cluster.settle()
    assert cluster.conditions("big")["Placed"][0] == "False"
    apply_in_order(cluster, {"small": spec_of()})
    await cluster.settle()
    assert running(cluster) == {"small"}


async def test_an_older_object_that_waits_for_another_pool_blocks_no_other() -> None:
    cluster = Cluster(MI300X, H100)
    cluster.occupy("h100-0", 8, "nvidia.com/gpu")
    cluster.occupy("mi300x-0", 8)
    apply_in_order(
        cluster, {"old": spec_of(placement=H100_ONLY), "new": spec_of(placement=AMD_ONLY)}
    )
    await cluster.settle()
    cluster.occupy("mi300x-0", 7)
    await cluster.settle(["new", "old"])
    assert running(cluster) == {"new"}


async def test_an_older_object_takes_one_of_two_pools_and_leaves_the_other() -> None:
    cluster = Cluster({**MI300X, "gpusPerNode": 1}, {**H100, "gpusPerNode": 1})
    cluster.occupy("h100-0", 1, "nvidia.com/gpu")
    cluster.occupy("mi300x-0", 1)
    apply_in_order(cluster, {"old": spec_of(), "new": spec_of()})
    await cluster.settle()
    cluster.free("h100-0")
    cluster.free("mi300x-0")
    await cluster.reconcile("new")
    await cluster.settle()
    assert running(cluster) == {"old", "new"}
    assert cluster.deployments() == ["new-h100-sxm-80gb", "old-mi300x"]


async def test_an_older_object_that_cannot_be_observed_blocks_no_other() -> None:
    cluster = await full(old=spec_of(), new=spec_of())
    cluster.occupy("mi300x-0", 7)
    cluster.api.fail_next("list", TransientError("503"), kind=PODS)
    await cluster.settle(["old", "new"])
    assert len(running(cluster)) == 1
    cluster.free("mi300x-0")
    await cluster.settle()
    assert running(cluster) == {"old", "new"}


async def test_an_older_object_that_is_refused_blocks_no_other() -> None:
    cluster = await full(old=spec_of(), new=spec_of())
    cluster.occupy("mi300x-0", 7)
    cluster.api.fail_next("apply", InvalidError("422"))
    await cluster.settle(["old", "new"])
    assert running(cluster) == {"new"}


async def test_an_older_object_that_is_deleted_blocks_no_other() -> None:
    cluster = await full(old=spec_of(), new=spec_of())
    cluster.delete("old")
    cluster.occupy("mi300x-0", 7)
    await cluster.settle(["new", "old"])
    assert running(cluster) == {"new"}


# What survives a restart of the operator


@pytest.mark.parametrize("field", ["template", "podTemplate"])
async def test_the_order_survives_a_restart(field: str) -> None:
    cluster = Cluster(MI300X)
    classes(cluster, high=100)
    cluster.occupy("mi300x-0", 8)
    high = spec_of(**{field: {"spec": {"priorityClassName": "high"}}})
    apply_in_order(cluster, {"c": spec_of(), "b": high, "a": spec_of()})
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


async def test_an_unknown_priority_class_is_refused_with_the_existing_ones() -> None:
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


async def test_without_the_right_to_read_priority_classes_objects_are_served() -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next("list", ForbiddenError("403"), kind=PRIORITY_CLASSES, times=99)
    cluster.apply("llama", with_class("high"))
    await cluster.settle()
    assert running(cluster) == {"llama"}


async def test_of_a_hundred_objects_on_capacity_for_sixty_forty_report_the_shortage() -> None:
    cluster = Cluster({**MI300X, "count": 12, "gpusPerNode": 5})
    names = [f"llama-{number:02}" for number in range(100)]
    for name in reversed(names):
        cluster.apply(name, spec_of())
    await cluster.settle()
    placed = [cluster.conditions(name)["Placed"] for name in names]
    assert placed.count(("True", "PoolChosen")) == 60
    assert placed.count(("False", "InsufficientGPUs")) == 40
    assert {cluster.status(name)["desiredReplicas"] for name in names} == {1}
