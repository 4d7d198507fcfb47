"""How pods are replaced, and how failing pods are reported."""

import pytest

from tests.support.in_memory.cluster import (
    L40S,
    MI300X,
    NAMESPACE,
    Cluster,
    spec_of,
)
from tests.support.in_memory.controllers import (
    crashing,
    loading,
    ready,
    run_deployments,
    without_image,
)
from tests.support.in_memory.serving import SETTLED, served
from tonnage.kube.kinds import (
    INFERENCE_DEPLOYMENTS,
    PODS,
)

# Rolling on a full pool


async def test_a_roll_on_a_pool_with_spare_gpus_drops_no_replica() -> None:
    cluster = await served({**MI300X, "gpusPerNode": 3}, replicas=2)
    cluster.behaviours["llama"] = loading
    served_pods = {pod["metadata"]["name"] for pod in cluster.pods()}
    cluster.behaviours["llama"] = lambda pod: (
        ready(pod) if pod["metadata"]["name"] in served_pods else loading(pod)
    )
    cluster.apply("llama", spec_of(replicas=2, engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.settle()
    assert len(cluster.pods()) == 3
    assert cluster.status()["readyReplicas"] == 2
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_a_roll_on_a_full_pool_goes_one_by_one() -> None:
    cluster = await served({**MI300X, "gpusPerNode": 2}, replicas=2)
    cluster.apply("llama", spec_of(replicas=2, engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.reconcile("llama")
    strategy = cluster.deployment("llama-mi300x")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_a_surge_without_a_gpu_is_given_up() -> None:
    cluster = await served({**MI300X, "gpusPerNode": 2}, replicas=1)
    cluster.apply("llama", spec_of(engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.reconcile("llama")
    strategy = cluster.deployment("llama-mi300x")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    cluster.occupy("mi300x-0", 1)  # another pod takes the spare one first
    await cluster.settle()
    assert cluster.conditions() == SETTLED
    strategy = cluster.deployment("llama-mi300x")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


async def test_a_surge_that_a_queue_holds_back_is_not_given_up() -> None:
    """Kueue holds back each pod for a moment; one by one, the replica that serves went first."""
    cluster = await served({**MI300X, "gpusPerNode": 2}, replicas=1)
    cluster.apply("llama", spec_of(engine={"vllm": {"maxNumSeqs": 77}}))
    await cluster.reconcile("llama")
    run_deployments(cluster.api)
    (new,) = (pod for pod in cluster.pods() if "nodeName" not in pod["spec"])
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    new["status"] = {"phase": "Pending", "conditions": [{**gated, "message": "gates"}]}
    cluster.api.put(PODS, new)
    await cluster.reconcile("llama")
    strategy = cluster.deployment("llama-mi300x")["spec"]["strategy"]
    assert strategy["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
    assert "gates" in cluster.message("Ready")
    assert cluster.conditions()["Available"][0] == "True"


async def test_replicas_of_another_size_on_a_full_pool_are_replaced_all_at_once() -> None:
    cluster = await served(L40S, replicas=4)
    cluster.apply("llama", spec_of(replicas=4, workload={"concurrency": 800}))
    await cluster.reconcile("llama")
    body = cluster.deployment("llama-l40s")
    assert body["spec"]["strategy"] == {"type": "Recreate"}
    assert body["spec"]["replicas"] == 2
    assert [one.replicas for one in cluster.fleet.view().snapshot().reservations] == [2]
    await cluster.settle()
    assert len(cluster.pods()) == 2
    assert cluster.conditions()["Placed"] == ("False", "InsufficientGPUs")


async def test_old_replicas_of_another_size_are_no_capacity_for_new_ones() -> None:
    cluster = await served(L40S, replicas=4)
    cluster.apply("llama", spec_of(replicas=4, workload={"concurrency": 800}))
    for _ in range(3):
        await cluster.reconcile("llama")
        assert cluster.deployment("llama-l40s")["spec"]["replicas"] == 2


async def test_a_surge_to_larger_replicas_without_a_gpu_replaces_all_at_once() -> None:
    cluster = await served(L40S)
    cluster.apply("llama", spec_of(workload={"concurrency": 200}))
    await cluster.reconcile("llama")
    assert cluster.deployment("llama-l40s")["spec"]["strategy"]["type"] == "RollingUpdate"
    cluster.occupy("l40s-0", 2, "nvidia.com/gpu")
    await cluster.settle()
    assert cluster.deployment("llama-l40s")["spec"]["strategy"] == {"type": "Recreate"}
    assert cluster.conditions() == SETTLED


async def test_a_pod_that_waits_for_a_node_changes_no_strategy() -> None:
    """Only a surge is given up: all at once, turned into one by one, could wait for ever."""
    cluster = await served(L40S, replicas=4)
    pod = cluster.pods()[0]
    waiting = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    pod["status"] = {"phase": "Pending", "conditions": [waiting]}
    del pod["spec"]["nodeName"]
    cluster.api.put(PODS, pod)
    cluster.apply("llama", spec_of(replicas=4, workload={"concurrency": 800}))
    for _ in range(3):
        await cluster.reconcile("llama")
        strategy = cluster.deployment("llama-l40s")["spec"]["strategy"]
        assert strategy == {"type": "Recreate"}


# Pods that fail


@pytest.mark.parametrize(
    ("behaviour", "log", "want_reason", "want_words"),
    [
        (crashing(137, "OOMKilled"), "", "OutOfMemory", "host memory limit exceeded"),
        (crashing(0, "Completed"), "", "ServerExited", "exit code 0"),
        (crashing(1), "OSError: [Errno 98] in use", "CrashLooping", "[Errno 98] in use"),
        (without_image, "", "ImagePullFailed", "Back-off pulling image"),
    ],
    ids=["OOMKilled", "exit 0", "crash loop", "image"],
)
async def test_a_failing_pod_is_reported_with_its_cause_and_recovers(
    behaviour: object, log: str, want_reason: str, want_words: str
) -> None:
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = behaviour
    cluster.apply("llama", spec_of())
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, "vllm", log, previous=True)
    await cluster.reconcile("llama")
    conditions = cluster.conditions()
    assert conditions["Ready"] == ("False", want_reason)
    assert conditions["Available"] == ("False", want_reason)
    assert conditions["Stalled"] == ("True", want_reason)
    assert "Reconciling" not in conditions
    assert want_words in cluster.message("Ready")
    del cluster.behaviours["llama"]
    await cluster.settle()
    assert cluster.conditions() == SETTLED


async def test_an_evicted_pod_that_was_replaced_is_no_failure() -> None:
    cluster = await served(MI300X)
    pod = cluster.pods()[0]
    end = {"terminated": {"exitCode": 137, "reason": "Error"}}
    pod["status"] = {
        "phase": "Failed",
        "reason": "Evicted",
        "containerStatuses": [{"name": "vllm", "restartCount": 0, "state": end}],
    }
    cluster.behaviours["llama"] = lambda each: (
        each["status"] if each["status"]["phase"] == "Failed" else ready(each)
    )
    cluster.api.put(PODS, pod)
    await cluster.settle()
    assert len(cluster.pods()) == 2
    assert cluster.conditions() == SETTLED


async def test_every_transition_is_recorded_once_as_an_event() -> None:
    cluster = await served(MI300X)
    assert cluster.recorder.events == [
        ("Placed", "PoolChosen"),  # so it was accepted
        ("Ready", "ReplicasReady"),
    ]


async def test_an_unreadable_object_does_not_affect_two_others() -> None:
    cluster = Cluster(MI300X)
    cluster.apply("bad", {"model": 7})
    cluster.apply("llama", spec_of())
    cluster.apply("other", spec_of())
    await cluster.settle()
    assert cluster.conditions("bad")["Accepted"] == ("False", "InvalidSpec")
    assert cluster.conditions("llama") == cluster.conditions("other") == SETTLED
    assert len(cluster.api.objects(INFERENCE_DEPLOYMENTS)) == 3
