"""The status says what replicas do that are not ready yet, and is written when that changes."""

from datetime import datetime

from tests.support.in_memory.cluster import MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import Behaviour, ready
from tests.support.load.startup_logs import (
    DOWNLOADED,
    LOADED,
    REQUESTED,
    STARTED,
    bar,
    log_of,
    step,
)
from tonnage import delays
from tonnage.kube.kinds import PODS
from tonnage.kube.protocol import ForbiddenError

SANDBOX = ("PodReadyToStartContainers", "Initialized")


async def starting(behaviour: Behaviour, replicas: int = 1) -> Cluster:
    """Replicas that have had a node for so long that their phase is reported."""
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = behaviour
    cluster.apply("llama", spec_of(replicas=replicas))
    await cluster.settle()
    await cluster.wait(delays.START_PHASES)
    return cluster


async def become(cluster: Cluster, behaviour: Behaviour, seconds: float = 30) -> None:
    cluster.behaviours["llama"] = behaviour
    await cluster.wait(seconds)


def phases(cluster: Cluster) -> dict[str, int]:
    return {one["phase"]: one["replicas"] for one in cluster.status().get("starting", [])}


def write_log(cluster: Cluster, pod: int, *lines: str, start: datetime | None = None) -> None:
    name = cluster.pods("llama")[pod]["metadata"]["name"]
    text = log_of(*lines, start=start or cluster.clock.now())
    cluster.api.set_log(NAMESPACE, name, "vllm", text)


async def test_the_phases_of_a_start_are_reported_one_after_the_other() -> None:
    cluster = await starting(step("ContainerCreating"))
    assert phases(cluster) == {"Creating": 1}
    assert cluster.message("Ready") == "0 of 1 replicas are ready; 1 creates its container"
    await become(cluster, step("ContainerCreating", true=SANDBOX))
    assert phases(cluster) == {"Pulling": 1}
    assert cluster.message("Ready") == "0 of 1 replicas are ready; 1 pulls its image"
    await become(cluster, step(true=SANDBOX, started=cluster.clock.now()))
    assert cluster.message("Ready") == "0 of 1 replicas are ready; 1 starts vLLM"
    lines, seen = [], []
    for line in (REQUESTED, DOWNLOADED, LOADED, STARTED):
        lines.append(line)
        write_log(cluster, 0, *lines)
        await cluster.wait(60)
        seen.append(cluster.message("Ready").partition("; ")[2])
    assert seen == [
        "1 downloads weights",
        "1 loads weights",
        "1 warms up",
        "1 waits for its readiness probe",
    ]
    assert cluster.conditions()["Ready"] == ("False", "ContainersNotReady")
    assert cluster.conditions()["Progressing"] == ("True", "ContainersNotReady")
    await become(cluster, ready, seconds=1)
    assert phases(cluster) == {}
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")


async def test_replicas_in_different_phases_are_counted() -> None:
    cluster = await starting(step(true=SANDBOX), replicas=3)
    for pod in (0, 2):
        write_log(cluster, pod, REQUESTED, bar(3))
    await cluster.wait(delays.START_PHASES)
    assert phases(cluster) == {"Loading": 2, "Starting": 1}
    assert cluster.message("Ready") == ("0 of 3 replicas are ready; 2 load weights, 1 starts vLLM")


async def test_a_file_more_that_is_loaded_writes_no_status() -> None:
    cluster = await starting(step(true=SANDBOX))
    write_log(cluster, 0, REQUESTED, bar(1))
    await cluster.wait(delays.START_PHASES)
    before = cluster.inference_deployment()["metadata"]["resourceVersion"]
    for loaded in range(2, 8):
        write_log(cluster, 0, REQUESTED, bar(loaded))
        await cluster.wait(60)
    assert phases(cluster) == {"Loading": 1}
    assert cluster.inference_deployment()["metadata"]["resourceVersion"] == before


async def test_a_ready_object_reads_no_log() -> None:
    cluster = await starting(step(true=SANDBOX))
    await become(cluster, ready)
    cluster.api.calls.clear()
    for _ in range(10):
        await cluster.wait(600)
        await cluster.resync()
    assert [call for call in cluster.api.calls if call.verb == "pod_log"] == []


async def test_without_the_right_to_read_logs_the_pod_is_all_that_is_known() -> None:
    cluster = Cluster(MI300X)
    cluster.api.fail_next("pod_log", ForbiddenError("403"), kind=PODS, times=99)
    cluster.behaviours["llama"] = step(true=SANDBOX)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await cluster.wait(300)
    assert phases(cluster) == {"Starting": 1}


async def test_a_new_operator_reports_the_same_and_measures_the_start_once() -> None:
    cluster = await starting(step(true=SANDBOX, started=Cluster().clock.now()))
    write_log(cluster, 0, REQUESTED, bar(1))
    await cluster.wait(delays.START_PHASES)
    before = cluster.status()
    cluster.start_operator()
    await cluster.settle()
    assert cluster.status() == before
    serves = step(true=SANDBOX, started=Cluster().clock.now(), ready=True)
    await become(cluster, serves)
    cluster.start_operator()
    await cluster.settle()
    (start,) = cluster.finished_starts
    assert start.pool == "amd-mi300x"
    assert start.seconds.keys() >= {"Scheduling", "Creating", "Starting", "Loading"}
