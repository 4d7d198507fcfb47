"""The operator dies, or does not hear the answer, at each write of each scenario.

A scenario with U writes makes 3U plans: a crash before the write, a crash after it, and a write
that is done and whose answer is lost. After each, a fresh operator must reach the state that an
undisturbed run reaches, with a bounded number of writes and nothing left over.
"""

import asyncio
import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.approving import approve
from tests.support.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.controllers import ready, without_image
from tests.support.fake_api import Crash
from tonnage.api.names import CHILD_FIELD_MANAGER
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS
from tonnage.kube.protocol import ConflictError, NotFoundError, TransientError
from tonnage.reconcile.key import Key

Change = Callable[[Cluster], object]


@dataclass(frozen=True)
class Scenario:
    """What is there before, and what somebody then does."""

    groups: tuple[dict[str, Any], ...]
    before: tuple[Change, ...]
    change: Change
    seconds: float = 30.0
    """Time that passes in the end: a taken name is looked at again after so long."""


def apply(**spec: Any) -> Change:
    return lambda cluster: cluster.apply("llama", spec_of(**spec))


def _make_anew(cluster: Cluster) -> None:
    cluster.delete("llama")
    cluster.apply("llama", spec_of(replicas=2))


def _lose_nodes(cluster: Cluster) -> None:
    cluster.leave("mi300x")


_CHEAPER = {"policy": "WhenCheaperBy", "stabilizationWindow": "10m"}


def _price(dollars: str) -> Change:
    """What an H100 costs an hour; everybody who holds GPUs is told of it."""

    def change(cluster: Cluster) -> None:
        spec = {
            "nodeSelector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
            "costPerGPUHour": dollars,
        }
        cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": "h100"}, "spec": spec})
        cluster.look_at_all()

    return change


def _take_name(cluster: Cluster) -> None:
    template = {"metadata": {"labels": {}}, "spec": {"containers": []}}
    cluster.api.put(
        DEPLOYMENTS,
        {
            "metadata": {"name": "llama-mi300x", "namespace": NAMESPACE},
            "spec": {"replicas": 0, "template": template, "strategy": {"type": "Recreate"}},
        },
    )


def _bad_image(cluster: Cluster) -> None:
    """An image that is not there; pods are told apart by when they were made."""
    cluster.clock.advance(60)
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if pod["spec"]["containers"][0]["image"] == "none" else ready(pod)
    )
    cluster.apply("llama", spec_of(replicas=2, engine={"vllm": {"image": "none"}}))


def _bad_pool(cluster: Cluster) -> None:
    cluster.clock.advance(60)
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    placement = {"accelerators": ["h100-sxm-80gb"]}
    cluster.apply("llama", spec_of(replicas=2, placement=placement))


_GATEWAY = {"inferencePool": {"endpointPickerRef": {"name": "picker", "port": {"number": 9002}}}}


SCENARIOS = {
    "create": Scenario((MI300X, H100), (), apply(replicas=2)),
    "create without room for all": Scenario(({**MI300X, "gpusPerNode": 2},), (), apply(replicas=3)),
    "re-plan to another pool": Scenario(
        (L40S, H100),
        (apply(placement={"accelerators": ["l40s"]}),),
        apply(placement={"accelerators": ["h100-sxm-80gb"]}),
    ),
    "roll with spare GPUs": Scenario(
        (MI300X,), (apply(replicas=2),), apply(replicas=2, engine={"vllm": {"maxNumSeqs": 77}})
    ),
    "roll on a full pool": Scenario(
        ({**MI300X, "gpusPerNode": 2},),
        (apply(replicas=2),),
        apply(replicas=2, engine={"vllm": {"maxNumSeqs": 77}}),
    ),
    "roll to larger replicas on a full pool": Scenario(
        (L40S,), (apply(replicas=4),), apply(replicas=4, workload={"concurrency": 800})
    ),
    "scale up": Scenario((MI300X,), (apply(),), apply(replicas=4)),
    "scale to zero": Scenario((MI300X,), (apply(replicas=2),), apply(replicas=0)),
    "leave a pool whose nodes are gone": Scenario((MI300X, H100), (apply(),), _lose_nodes, 700.0),
    "move to a cheaper pool": Scenario(
        (MI300X, H100),
        (_price("0.50"), apply(placement={"rebalance": _CHEAPER})),
        _price("9"),
        700.0,
    ),
    "approve the first plan": Scenario((MI300X,), (apply(approval="Manual"),), approve),
    "approve a move": Scenario(
        (MI300X, H100),
        (
            apply(approval="Manual", placement={"accelerators": ["h100-sxm-80gb"]}),
            approve,
            apply(approval="Manual", placement={"accelerators": ["mi300x"]}),
        ),
        approve,
    ),
    "go back from a bad image": Scenario(
        ({**MI300X, "gpusPerNode": 2},),
        (apply(replicas=2),),
        _bad_image,
        4000.0,
    ),
    "go back to the pool before": Scenario(
        (MI300X, H100),
        (apply(replicas=2, placement={"accelerators": ["mi300x"]}),),
        _bad_pool,
        4000.0,
    ),
    "pause a change": Scenario(
        (MI300X,),
        (apply(replicas=2),),
        apply(replicas=2, rollout={"paused": True}, engine={"vllm": {"maxNumSeqs": 77}}),
    ),
    "delete and make anew": Scenario((MI300X,), (apply(),), _make_anew),
    "ask for an InferencePool": Scenario((MI300X,), (), apply(gateway=_GATEWAY)),
    "take the request for it back": Scenario((MI300X,), (apply(gateway=_GATEWAY),), apply()),
    "name conflict": Scenario((MI300X,), (_take_name,), apply()),
    "bad spec": Scenario((MI300X,), (apply(),), apply(workload={"maxModelLen": -1})),
}


async def _prepare(scenario: Scenario) -> Cluster:
    cluster = Cluster(*scenario.groups)
    for change in scenario.before:
        change(cluster)
        await cluster.settle()
    return cluster


async def _run(cluster: Cluster, scenario: Scenario) -> None:
    scenario.change(cluster)
    await cluster.settle()
    await cluster.wait(scenario.seconds)
    await cluster.wait(scenario.seconds)  # a wait that the fault made begin later
    assert cluster.api.collect_garbage() == []


async def _reference(scenario: Scenario) -> tuple[Cluster, int, int, int]:
    """The undisturbed run: what is there in the end, and its writes, calls and child writes."""
    cluster = await _prepare(scenario)
    api = cluster.api
    before = api.write_count, api.call_count, write_count(api)
    await _run(cluster, scenario)
    writes, calls = api.write_count - before[0], api.call_count - before[1]
    return cluster, writes, calls, write_count(api) - before[2]


@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_crash_at_any_write_ends_where_an_undisturbed_run_ends(name: str) -> None:
    scenario = SCENARIOS[name]
    want, writes, _, child_writes = await _reference(scenario)
    assert writes > 0
    for number in range(1, writes + 1):
        for error, after in ((Crash(), False), (Crash(), True), (TransientError("lost"), True)):
            plan = f"{type(error).__name__} {'after' if after else 'before'} write {number}"
            cluster = await _prepare(scenario)
            before = cluster.api.write_count, write_count(cluster.api)
            cluster.api.fault_at_write(before[0] + number, error, after=after)
            await _run(cluster, scenario)
            assert cluster.end_state() == want.end_state(), plan
            assert write_count(cluster.api) - before[1] <= child_writes + 1, plan
            assert cluster.api.write_count - before[0] <= 2 * writes + 2, plan


@pytest.mark.parametrize(
    "error",
    [ConflictError("409"), NotFoundError("404"), TransientError("429", retry_after=1.0)],
    ids=["conflict", "not found", "too many requests"],
)
@pytest.mark.parametrize(
    "name",
    [
        "create",
        "re-plan to another pool",
        "roll to larger replicas on a full pool",
        "leave a pool whose nodes are gone",
        "delete and make anew",
        "ask for an InferencePool",
    ],
)
async def test_an_error_at_any_call_ends_where_an_undisturbed_run_ends(
    name: str, error: Exception
) -> None:
    await _fail_at_each_call(SCENARIOS[name], error)


@pytest.mark.parametrize(
    "error", [ConflictError("409"), TransientError("503")], ids=["conflict", "transient"]
)
async def test_a_pool_nobody_asks_for_any_more_is_not_forgotten(error: Exception) -> None:
    """But for a false 404 of it: an API server that says so of a pool that is there has no cure."""
    await _fail_at_each_call(SCENARIOS["take the request for it back"], error)


async def _fail_at_each_call(scenario: Scenario, error: Exception) -> None:
    want, _, calls, _ = await _reference(scenario)
    for number in range(1, calls + 1):
        cluster = await _prepare(scenario)
        cluster.api.fault_at_call(cluster.api.call_count + number, copy.copy(error))
        await _run(cluster, scenario)
        await cluster.resync()  # a false 404 of the object itself is corrected by the resync
        await cluster.wait(scenario.seconds)
        assert cluster.end_state() == want.end_state(), f"{error} at call {number}"


async def test_a_foreign_object_is_never_taken_over_whatever_fails() -> None:
    scenario = SCENARIOS["name conflict"]
    _, _, calls, _ = await _reference(scenario)
    for number in range(1, calls + 1):
        for error in (ConflictError("409"), TransientError("503"), Crash()):
            cluster = await _prepare(scenario)
            cluster.api.fault_at_call(cluster.api.call_count + number, error)
            await _run(cluster, scenario)
            managers = cluster.api.field_managers(DEPLOYMENTS, NAMESPACE, "llama-mi300x")
            assert CHILD_FIELD_MANAGER not in managers


async def test_two_operators_at_once_end_where_one_ends() -> None:
    scenario = SCENARIOS["re-plan to another pool"]
    want, _, _, child_writes = await _reference(scenario)
    cluster = await _prepare(scenario)
    before = write_count(cluster.api)
    scenario.change(cluster)
    first = cluster.reconciler
    cluster.start_operator()
    second = cluster.reconciler
    key = Key(NAMESPACE, "llama")
    for _ in range(8):
        await asyncio.gather(first.reconcile(key), second.reconcile(key), return_exceptions=True)
        cluster.step()
    await cluster.settle()
    assert cluster.end_state() == want.end_state()
    assert write_count(cluster.api) - before <= 2 * child_writes
