"""A replica on several nodes whose containers fail: its pods are deleted at once, with their logs,
so the status keeps why."""

from tests.support.in_memory.cluster import H100, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import Behaviour, crashing, loading, ready, without_image
from tests.support.in_memory.leader_worker_sets import WORKER
from tonnage.kube.kinds import PODS

NODES = {**H100, "count": 4, "resources": {"rdma/ib": "1k"}}
CUDA = "RuntimeError: CUDA error: an illegal memory access was encountered"
SHORT = {"progressDeadline": "30m"}


async def starting(behaviour: Behaviour = loading) -> Cluster:
    """One replica on two nodes, whose containers do this."""
    cluster = Cluster(NODES)
    cluster.has_leader_worker_set = True
    cluster.behaviours["llama"] = behaviour
    cluster.apply("llama", spec_of(model="deepseek-v3", rollout=SHORT))
    await cluster.settle()
    return cluster


async def fail_worker(cluster: Cluster, message: str, times: int = 1, every: float = 60) -> None:
    """So often the container of the worker ends, and the group is recreated."""
    for _ in range(times):
        await cluster.wait(every)
        (worker,) = (
            pod for pod in cluster.api.objects(PODS) if pod["metadata"]["labels"][WORKER] == "1"
        )
        cluster.api.set_status(
            PODS, NAMESPACE, worker["metadata"]["name"], crashing(message=message)(worker)
        )
        await cluster.settle()


def restarts(cluster: Cluster) -> int:
    return sum(
        container["restartCount"]
        for pod in cluster.api.objects(PODS)
        for container in pod["status"].get("containerStatuses", ())
    )


async def test_the_cause_stays_when_the_pod_is_gone() -> None:
    cluster = await starting()
    await fail_worker(cluster, CUDA)
    assert restarts(cluster) == 0, "the group is a new one"
    assert cluster.conditions()["Ready"] == ("False", "CrashLooping")
    assert "1 pod failed on node h100-1 and was replaced: exit code 1" in cluster.message("Ready")
    assert CUDA in cluster.message("Ready")


async def test_a_group_that_is_recreated_again_and_again_says_how_often() -> None:
    cluster = await starting()
    await fail_worker(cluster, CUDA, times=6)
    assert "at least 5 pods failed" in cluster.message("Ready")
    assert "failedPlans" not in cluster.status(), "within its progress deadline"


async def test_it_fails_the_plan_at_the_progress_deadline() -> None:
    cluster = await starting()
    await fail_worker(cluster, CUDA, times=7, every=300)
    (failed,) = cluster.status()["failedPlans"]
    assert failed["reason"] == "CrashLooping"
    assert failed["nodesPerReplica"] == 2


async def test_a_group_that_ran_out_of_memory_gets_another_plan() -> None:
    cluster = await starting()
    words = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
        " capacity of 79.18 GiB of which 1.00 GiB is free."
    )
    before = [pod["spec"]["containers"][0]["args"] for pod in cluster.api.objects(PODS)]
    await fail_worker(cluster, words)
    (failed, *_) = cluster.status()["failedPlans"]
    assert failed["reason"] == "OutOfMemory"
    after = [pod["spec"]["containers"][0]["args"] for pod in cluster.api.objects(PODS)]
    assert after
    assert after != before


async def test_what_failed_before_the_group_was_ready_explains_nothing_later() -> None:
    cluster = await starting()
    await fail_worker(cluster, CUDA)
    cluster.behaviours["llama"] = ready
    await cluster.wait(60)
    assert cluster.conditions()["Ready"][0] == "True"
    cluster.behaviours["llama"] = loading
    await cluster.wait(600)
    assert "CUDA" not in cluster.message("Ready")


async def test_a_group_whose_image_cannot_be_pulled_fails_its_plan_at_the_deadline() -> None:
    cluster = await starting(without_image)
    (placed,) = cluster.status()["placements"]
    assert placed["nodesPerReplica"] == 2
    await cluster.wait(1900)
    assert cluster.status()["failedPlans"][0]["reason"] == "ImagePullFailed"
