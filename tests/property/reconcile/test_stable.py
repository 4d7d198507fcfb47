"""When users and the cluster stop changing, the operator converges."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_memory.cluster import H100, L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, loading, without_image
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, INFERENCE_DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import ApiError, NotFoundError, TransientError

NAMES = ("llama", "qwen", "gemma")
POOLS = {
    "mi300x": {**MI300X, "gpusPerNode": 2},
    "h100": {**H100, "gpusPerNode": 4},
    "l40s": {**L40S, "count": 2},
    "spare": {**H100, "name": "spare", "gpusPerNode": 4, "labels": {"team": "spare"}},
}
"""Of these `spare` becomes a pool of its own, of the same accelerator, when it is declared."""
SPECS: dict[str, Any] = {
    "one": spec_of(),
    "three": spec_of(replicas=3),
    "none": spec_of(replicas=0),
    "long": spec_of(workload={"maxModelLen": 131072, "concurrency": 3, "inputTokens": 100_000}),
    "many at once": spec_of(replicas=2, workload={"concurrency": 800}),
    "70B": spec_of("llama-3.3-70b", workload={"maxModelLen": 32768}),
    "70B on l40s": spec_of(
        "llama-3.3-70b", placement={"policy": "FewestGPUs", "accelerators": ["l40s"]}
    ),
    "not on AMD": spec_of(
        placement={"accelerators": ["h100-sxm-80gb", "l40s"], "fallback": {"after": "30s"}}
    ),
    "recreate": spec_of(engine={"vllm": {"maxNumSeqs": 77}}, rollout={"strategy": "Recreate"}),
    "surge": spec_of(rollout={"strategy": "Surge"}, placement={"policy": "HighestThroughput"}),
    "manual": spec_of(replicas=2, approval="Manual"),
    "restarted": spec_of(rollout={"restartedAt": "2026-01-01T00:00:00Z"}),
    "negative": spec_of(workload={"maxModelLen": -1}),
    "nonsense": {"model": 7},
}

names, pools = st.sampled_from(NAMES), st.sampled_from(sorted(POOLS))
steps = st.one_of(
    st.tuples(st.just("apply"), names, st.sampled_from(sorted(SPECS))),
    st.tuples(st.just("delete"), names, st.none()),
    st.tuples(st.just("make anew"), names, st.sampled_from(sorted(SPECS))),
    st.tuples(st.just("cordon"), pools, st.booleans()),
    st.tuples(st.just("leave"), pools, st.none()),
    st.tuples(st.just("join"), pools, st.none()),
    st.tuples(st.just("declare"), pools, st.booleans()),
    st.tuples(st.just("occupy"), pools, st.booleans()),
    st.tuples(st.just("behave"), names, st.sampled_from(["", "load", "crash", "image"])),
    st.tuples(st.just("scale child"), names, st.integers(0, 5)),
    st.tuples(st.just("remove children"), names, st.none()),
    st.tuples(st.just("fail"), st.sampled_from(["apply", "list", "get"]), st.integers(1, 3)),
    st.tuples(st.just("reconcile"), names, st.none()),
    st.tuples(st.just("controllers"), st.none(), st.none()),
    st.tuples(st.just("restart"), st.none(), st.none()),
    st.tuples(st.just("wait"), st.none(), st.sampled_from([1, 29, 700])),
)
SELECTORS = {
    "mi300x": {"amd.com/gpu.device-id": "74a1"},
    "h100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    "l40s": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
    "spare": {"team": "spare"},
}
BEHAVIOURS: dict[str, Any] = {
    "load": loading,
    "crash": crashing(1),
    "image": without_image,
}


def apply(cluster: Cluster, name: str, spec: str) -> None:
    cluster.apply(name, SPECS[spec])


def delete(cluster: Cluster, name: str, _: None) -> None:
    cluster.delete(name)


def make_anew(cluster: Cluster, name: str, spec: str) -> None:
    cluster.delete(name)
    cluster.apply(name, SPECS[spec])


def join(cluster: Cluster, pool: str, _: None) -> None:
    cluster.join(**POOLS[pool])


def declare(cluster: Cluster, pool: str, declared: bool) -> None:
    if declared:
        spec = {"nodeSelector": SELECTORS[pool], "costPerGPUHour": "3"}
        cluster.api.put(ACCELERATOR_POOLS, {"metadata": {"name": f"team-{pool}"}, "spec": spec})
    else:
        cluster.api.remove(ACCELERATOR_POOLS, None, f"team-{pool}")
    cluster.watch()


def occupy(cluster: Cluster, pool: str, occupied: bool) -> None:
    resource = "amd.com/gpu" if pool == "mi300x" else "nvidia.com/gpu"
    free = not any(cluster.pods(name) for name in NAMES)
    if occupied and free:
        cluster.occupy(f"{pool}-0", 2, resource)
    else:
        cluster.free(f"{pool}-0")


def behave(cluster: Cluster, name: str, behaviour: str) -> None:
    cluster.behaviours.pop(name, None)
    if behaviour:
        cluster.behaviours[name] = BEHAVIOURS[behaviour]


def scale_child(cluster: Cluster, name: str, replicas: int) -> None:
    for body in cluster.api.objects(DEPLOYMENTS):
        if body["metadata"]["name"].startswith(name):
            body["spec"]["replicas"] = replicas
            cluster.api.put(DEPLOYMENTS, body)


def remove_children(cluster: Cluster, name: str, _: None) -> None:
    cluster.api.remove(SERVICES, NAMESPACE, name)
    for body in cluster.api.objects(DEPLOYMENTS):
        if body["metadata"]["name"].startswith(name):
            cluster.api.remove(DEPLOYMENTS, NAMESPACE, body["metadata"]["name"])


def fail(cluster: Cluster, verb: Any, times: int) -> None:
    cluster.api.fail_next(verb, TransientError("503"), times=times)


ACTS: dict[str, Callable[[Cluster, Any, Any], None]] = {
    "apply": apply,
    "delete": delete,
    "make anew": make_anew,
    "cordon": lambda cluster, pool, cordoned: cluster.cordon(pool, cordoned),
    "leave": lambda cluster, pool, _: cluster.leave(pool),
    "join": join,
    "declare": declare,
    "occupy": occupy,
    "behave": behave,
    "scale child": scale_child,
    "remove children": remove_children,
    "fail": fail,
    "controllers": lambda cluster, *_: cluster.step(),
    "restart": lambda cluster, *_: cluster.start_operator(),
}


async def take(cluster: Cluster, step: tuple[str, Any, Any]) -> None:
    kind, what, how = step
    if kind == "wait":
        await cluster.wait(how)
    elif kind == "reconcile":
        try:
            await cluster.reconcile(what)
        except ApiError:
            cluster.start_operator()
    else:
        ACTS[kind](cluster, what, how)


async def check_rest(cluster: Cluster) -> None:
    """Nothing is left to be written, nothing is given away twice, and status is true.

    The candidates report what is free elsewhere, so each object is reconciled once more before.
    """
    await cluster.resync()
    before = cluster.api.write_count
    for body in cluster.api.objects(INFERENCE_DEPLOYMENTS):
        await cluster.reconcile(body["metadata"]["name"])
    assert cluster.api.write_count == before
    cluster.start_operator()
    await cluster.settle()
    assert cluster.api.write_count == before, "a restarted operator writes"
    for body in cluster.api.objects(INFERENCE_DEPLOYMENTS):
        check_truth(cluster, body["metadata"]["name"])


def check_truth(cluster: Cluster, name: str) -> None:
    """What a person reads off the conditions holds of the pods."""
    conditions, spec = cluster.conditions(name), cluster.inference_deployment(name)["spec"]
    assert (conditions["Ready"][0] == "True") <= ("Stalled" not in conditions)
    assert (conditions["Progressing"][0] == "True") == ("Reconciling" in conditions)
    if conditions["Placed"][0] == "True" and spec.get("rollout") != {"strategy": "Surge"}:
        waiting = [pod["metadata"]["name"] for pod in cluster.pods(name) if not _is_bound(pod)]
        assert waiting == [], "GPUs were promised that are not there"
    if conditions["Ready"][0] == "True":
        serving = [pod for pod in cluster.pods(name) if _is_ready(pod)]
        assert len(serving) == len(cluster.pods(name)) == spec.get("replicas", len(serving))
        assert len([one for one in cluster.deployments() if one.startswith(name)]) == 1


def _is_bound(pod: Any) -> bool:
    return "nodeName" in pod["spec"]


def _is_ready(pod: Any) -> bool:
    conditions = pod["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)
@given(st.lists(steps, min_size=2, max_size=20))
def test_the_operator_converges_when_changes_stop(history: list[tuple[str, Any, Any]]) -> None:
    async def run() -> None:
        cluster = Cluster(*POOLS.values())
        for step in history:
            await take(cluster, step)
        cluster.api.clear_faults()
        await cluster.resync()
        await check_rest(cluster)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(3))
async def test_objects_in_any_order_reserve_no_more_than_all_gpus(seed: int) -> None:
    chance = random.Random(seed)
    cluster = Cluster({**MI300X, "count": 12, "gpusPerNode": 5})
    names_of_all = [f"llama-{number:02}" for number in range(100)]
    for name in names_of_all:
        cluster.apply(name, spec_of())
    chance.shuffle(names_of_all)
    for name in names_of_all:
        await cluster.reconcile(name)
        assert (
            sum(
                reservation.replicas for reservation in cluster.fleet.view().snapshot().reservations
            )
            <= 60
        )
        if chance.random() < 0.05:
            cluster.start_operator()
    await cluster.settle(names_of_all)
    placed = [cluster.conditions(name)["Placed"] for name in names_of_all]
    assert placed.count(("True", "PoolChosen")) == 60
    assert placed.count(("False", "InsufficientGPUs")) == 40
    running = [name for name in names_of_all if cluster.conditions(name)["Ready"][0] == "True"]
    assert len(running) == 60
    for name in running[:5]:
        cluster.delete(name)
    await cluster.settle()
    left = [name for name in names_of_all if name not in running[:5]]
    assert sum(cluster.conditions(name)["Ready"][0] == "True" for name in left) == 60
    with pytest.raises(NotFoundError):
        cluster.status(running[0])
