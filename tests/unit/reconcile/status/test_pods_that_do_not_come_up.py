"""Pods that are evicted, rejected or never get a container: the status says why, where, and when it
is no start any more."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import Behaviour, loading, ready
from tests.support.production.pod_faults import (
    creating,
    evicted,
    no_sandbox,
    pod_event,
    secret_missing,
    unexpected_admission_error,
    volume_not_mounted,
)
from tonnage import delays
from tonnage.kube.kinds import EVENTS, PODS
from tonnage.kube.protocol import ForbiddenError, Object
from tonnage.kube.rights import Right

NODE = "mi300x-0"
HOUR = 3600.0
SHORT = {"progressDeadline": "30m"}


async def starting(behaviour: Behaviour, **spec: Any) -> Cluster:
    """One replica that has a node and does this."""
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = behaviour
    cluster.apply("llama", spec_of(rollout=SHORT, **spec))
    await cluster.settle()
    return cluster


async def fail_again(cluster: Cluster, status: Object, times: int, every: float) -> None:
    """So often the replica is ended by its kubelet, and another one starts."""
    for _ in range(times):
        await cluster.wait(every)
        cluster.fail_pods("llama", status)
        await cluster.settle()


def finding(cluster: Cluster, kind: str) -> str:
    return cluster.conditions().get(kind, ("", ""))[0]


# What a kubelet ends or rejects


async def test_an_eviction_is_reported_with_its_cause_and_its_node() -> None:
    cluster = await starting(loading)
    await fail_again(cluster, evicted(), times=3, every=300)
    assert cluster.conditions()["Ready"] == ("False", "PodFailed")
    assert cluster.message("Ready").startswith(
        "at least 2 pods failed: Evicted on node mi300x-0: The node was low on resource:"
    )
    assert finding(cluster, "Progressing") == "True"
    assert finding(cluster, "Stalled") == ""


async def test_evicted_for_a_day_is_stalled_and_a_failed_plan() -> None:
    cluster = await starting(loading)
    await fail_again(cluster, evicted(), times=60, every=900)
    assert cluster.conditions()["Ready"] == ("False", "PodFailed")
    assert cluster.message("Ready").startswith("at least 50 pods failed: Evicted on node mi300x-0")
    assert cluster.conditions()["Progressing"] == ("False", "Waiting")
    assert cluster.conditions()["Stalled"] == ("True", "PodFailed")
    (failed,) = cluster.status()["failedPlans"]
    assert failed["reason"] == "PodFailed"


async def test_stalled_comes_by_the_clock_of_failed_plans() -> None:
    cluster = await starting(loading)
    await fail_again(cluster, evicted(), times=5, every=300)
    assert finding(cluster, "Stalled") == ""
    await fail_again(cluster, evicted(), times=1, every=300)
    assert finding(cluster, "Stalled") == "True"
    assert len(cluster.status()["failedPlans"]) == 1


async def test_a_rejected_pod_is_reported_in_the_kubelets_words() -> None:
    cluster = await starting(loading)
    await fail_again(cluster, unexpected_admission_error("amd.com/gpu"), times=1, every=200)
    await cluster.wait(delays.POD_REPORTS)
    assert cluster.message("Ready") == (
        "1 pod failed: UnexpectedAdmissionError on node mi300x-0: Pod was rejected: Allocate failed"
        " due to requested number of devices unavailable for amd.com/gpu. Requested: 1, Available:"
        " 0, which is unexpected"
    )


async def test_a_replica_that_served_and_is_evicted_again_and_again_is_stalled_too() -> None:
    cluster = await starting(ready)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.behaviours["llama"] = loading
    cluster.fail_pods("llama", evicted())
    await cluster.settle()
    await fail_again(cluster, evicted(), times=8, every=300)
    assert cluster.conditions()["Stalled"] == ("True", "PodFailed")
    assert "failedPlans" not in cluster.status()  # the plan has served


async def test_what_failed_before_the_replicas_were_ready_explains_nothing_now() -> None:
    cluster = await starting(loading)
    await fail_again(cluster, evicted(), times=1, every=200)
    cluster.behaviours["llama"] = ready
    await cluster.wait(60)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.behaviours["llama"] = loading
    await cluster.wait(HOUR)
    assert "Evicted" not in cluster.message("Ready")


async def test_a_new_template_starts_without_the_failures_of_the_old_one() -> None:
    cluster = await starting(loading)
    await fail_again(cluster, evicted(), times=9, every=300)
    assert finding(cluster, "Stalled") == "True"
    cluster.apply("llama", spec_of(rollout=SHORT, engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.settle()
    await cluster.wait(200)
    assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
    assert finding(cluster, "Stalled") == ""


async def test_pods_that_are_rejected_at_once_cost_a_list_every_few_seconds() -> None:
    cluster = await starting(loading)
    await cluster.wait(200)
    calls = len(cluster.api.calls)
    for _ in range(30):
        cluster.fail_pods("llama", unexpected_admission_error("amd.com/gpu"))
        await cluster.settle()
        await cluster.wait(1)
    lists = [call for call in cluster.api.calls[calls:] if (call.verb, call.kind) == ("list", PODS)]
    assert 1 <= len(lists) <= 2
    status_writes = [call for call in cluster.api.calls[calls:] if call.verb == "apply_status"]
    assert len(status_writes) <= 3


# Containers that are not created


CREATION = {
    "volume": (
        volume_not_mounted("models", 'configmap "models" not found'),
        'FailedMount on node mi300x-0: MountVolume.SetUp failed for volume "models" : configmap'
        ' "models" not found',
    ),
    "network": (
        no_sandbox('plugin type="calico" failed (add): no route to host'),
        "FailedCreatePodSandBox on node mi300x-0: Failed to create pod sandbox: rpc error: code ="
        ' Unknown desc = failed to setup network for sandbox: plugin type="calico" failed (add):'
        " no route to host",
    ),
    "Secret": (
        secret_missing("hf"),
        'CreateContainerConfigError on node mi300x-0: secret "hf" not found',
    ),
}


@pytest.mark.parametrize("case", CREATION)
async def test_why_a_container_is_not_created_is_reported_with_the_node(case: str) -> None:
    behaviour, want = CREATION[case]
    cluster = await starting(behaviour)
    await cluster.wait(delays.POD_REPORTS + 1)
    assert cluster.conditions()["Ready"] == ("False", "ContainerNotCreated")
    assert cluster.message("Ready").endswith(f": {want}")
    assert "loading a model" not in cluster.message("Ready")
    assert finding(cluster, "Stalled") == ""


@pytest.mark.parametrize("case", CREATION)
async def test_a_container_that_is_not_created_for_15_hours_is_stalled(case: str) -> None:
    behaviour, want = CREATION[case]
    cluster = await starting(behaviour)
    for _ in range(15):
        await cluster.wait(HOUR)
    assert cluster.conditions()["Progressing"] == ("False", "Waiting")
    assert cluster.conditions()["Stalled"] == ("True", "ContainerNotCreated")
    assert want in cluster.message("Stalled")
    (failed,) = cluster.status()["failedPlans"]
    assert want in failed["message"]


@pytest.mark.parametrize("case", CREATION)
async def test_it_is_ready_once_the_cause_is_gone(case: str) -> None:
    behaviour, _ = CREATION[case]
    cluster = await starting(behaviour)
    await cluster.wait(HOUR)
    await cluster.wait(HOUR)
    assert finding(cluster, "Stalled") == "True"
    cluster.behaviours["llama"] = ready
    await cluster.settle()
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert finding(cluster, "Stalled") == ""


async def test_a_large_image_that_is_pulled_is_no_failure() -> None:
    cluster = await starting(creating())
    (pod,) = cluster.pods()
    event = pod_event(pod, "Pulling", 'Pulling image "vllm"', cluster.clock.now())
    cluster.api.put(EVENTS, {**event, "type": "Normal"})
    await cluster.wait(delays.POD_REPORTS + 1)
    assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
    assert 'Pulling on node mi300x-0: Pulling image "vllm"' in cluster.message("Ready")


async def test_without_an_event_the_status_says_that_none_says_why() -> None:
    cluster = await starting(creating())
    await cluster.wait(delays.POD_REPORTS + 1)
    want = "ContainerCreating on node mi300x-0: no Event says why"
    assert cluster.message("Ready").endswith(want)


async def test_without_the_right_to_list_events_the_rest_is_reported() -> None:
    cluster = await starting(volume_not_mounted("models", "not found"))
    denied = ForbiddenError("403", Right("list", "events.k8s.io", "events", NAMESPACE))
    cluster.api.fail_next("list", denied, kind=EVENTS, times=9)
    await cluster.wait(delays.POD_REPORTS + 1)
    assert "ContainerCreating on node mi300x-0" in cluster.message("Ready")


async def test_events_of_other_pods_and_forged_bytes_do_no_harm() -> None:
    cluster = await starting(creating())
    (pod,) = cluster.pods()
    other = {**pod, "metadata": {**pod["metadata"], "name": "other", "uid": "other"}}
    cluster.api.put(EVENTS, pod_event(other, "FailedMount", "of another", cluster.clock.now()))
    event = pod_event(pod, "FailedMount", "x" * 5000, cluster.clock.now())
    cluster.api.put(EVENTS, {**event, "series": 7, "deprecatedLastTimestamp": ["no"]})
    await cluster.wait(delays.POD_REPORTS + 1)
    assert "of another" not in cluster.message("Ready")
    assert len(cluster.message("Ready").encode()) <= 1024


# What is no failure of pods


async def test_a_server_that_hangs_is_stalled_by_the_same_clock() -> None:
    cluster = await starting(loading)
    await cluster.wait(1200)
    assert finding(cluster, "Progressing") == "True"
    assert "1 starts vLLM" in cluster.message("Ready")
    await cluster.wait(700)
    await cluster.wait(1)
    assert cluster.conditions()["Ready"] == ("False", "ProgressDeadlineExceeded")
    assert cluster.conditions()["Progressing"] == ("False", "Waiting")
    assert cluster.conditions()["Stalled"] == ("True", "ProgressDeadlineExceeded")


async def test_waiting_for_gpus_is_never_stalled() -> None:
    cluster = Cluster(MI300X)
    cluster.occupy(NODE, 8)
    cluster.apply("llama", spec_of(rollout=SHORT))
    await cluster.settle()
    for _ in range(5):
        await cluster.wait(HOUR)
    assert finding(cluster, "Stalled") == ""
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")


async def test_a_start_within_two_minutes_lists_no_pods_and_no_events() -> None:
    cluster = await starting(loading)
    await cluster.wait(60)
    cluster.behaviours["llama"] = ready
    await cluster.settle()
    await cluster.wait(HOUR)
    lists = [call for call in cluster.api.calls if call.verb == "list"]
    assert not [call for call in lists if call.kind in (PODS, EVENTS)]
