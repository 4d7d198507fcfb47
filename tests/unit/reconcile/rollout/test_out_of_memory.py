"""Replicas that run out of GPU memory when they start: the next plan is taken, until one runs or
none is left."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.in_memory.controllers import Behaviour, crashing, ended, ready
from tests.support.in_memory.pricing import place_of, price
from tests.support.in_memory.serving import SETTLED
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object

DEVICE_FULL: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total"
    " capacity of 79.19 GiB of which 12.50 MiB is free."
)
SMALL_KV_CACHE: Final = (
    "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (0.6 GiB)."
)
NO_KV_CACHE: Final = "ValueError: No available memory for the cache blocks. Try increasing"
TENSOR: Final = "--tensor-parallel-size="
SETTINGS: Final = ("--gpu-memory-utilization=", "--max-num-seqs=", "--max-num-batched-tokens=")


class FakeServer:
    """A vLLM server that runs out of memory unless it is started with accepted settings; it records
    each start."""

    def __init__(self, runs: Callable[[list[str]], bool], words: str = DEVICE_FULL) -> None:
        self.starts: list[list[str]] = []
        self.runs, self._dies = runs, crashing(message=words)

    def __call__(self, pod: Object) -> Object:
        container = pod["spec"]["containers"][0]
        assert container["name"] == "vllm"
        start = [
            argument for argument in container["args"] if argument.startswith((TENSOR, *SETTINGS))
        ]
        if start not in self.starts:
            self.starts.append(start)
        return ready(pod) if self.runs(start) else self._dies(pod)


async def started(server: Behaviour, *groups: dict[str, Any], **spec: Any) -> Cluster:
    cluster = Cluster(*groups)
    cluster.behaviours["llama"] = server
    cluster.apply("llama", spec_of(**spec))
    await cluster.settle()
    await pass_time(cluster)
    return cluster


async def pass_time(cluster: Cluster) -> None:
    """20 seconds, much less than any timeout."""
    for _ in range(20):
        await cluster.wait(1)


def split(tensor: int) -> str:
    return f"{TENSOR}{tensor}"


async def test_three_failed_starts_lead_to_the_plan_that_runs() -> None:
    server = FakeServer(lambda start: "--gpu-memory-utilization=0.88" in start)
    cluster = await started(server, H100)
    assert server.starts == [
        [split(1)],
        [split(1), "--max-num-batched-tokens=4096"],
        [split(1), "--max-num-seqs=512", "--max-num-batched-tokens=4096"],
        [
            split(1),
            "--gpu-memory-utilization=0.88",
            "--max-num-seqs=512",
            "--max-num-batched-tokens=4096",
        ],
    ]
    assert cluster.conditions() == SETTLED
    assert place_of(cluster)["adjustments"] == {
        "gpuMemoryUtilization": 0.88,
        "maxNumSeqs": 512,
        "maxNumBatchedTokens": 4096,
    }
    assert len(cluster.status()["failedPlans"]) == 3


async def test_a_failed_start_is_reported_with_the_log_of_vllm_until_the_next_one() -> None:
    cluster = Cluster(H100)
    cluster.behaviours["llama"] = crashing(1)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, "vllm", DEVICE_FULL, previous=True)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "OutOfMemory")
    assert "Tried to allocate 256.00 MiB" in cluster.message("Ready")
    assert cluster.conditions()["Progressing"] == ("True", "OutOfMemory")
    await cluster.wait(1)
    assert cluster.status()["failedPlans"][0]["message"] == DEVICE_FULL
    assert place_of(cluster)["adjustments"] == {"maxNumBatchedTokens": 4096}


@pytest.mark.parametrize(
    ("current", "previous"),
    [
        pytest.param(DEVICE_FULL, None, id="the container is still ended"),
        pytest.param("INFO Starting vLLM", DEVICE_FULL, id="it runs again since"),
        pytest.param(None, DEVICE_FULL, id="it waits to be started again since"),
    ],
)
async def test_the_cause_is_read_from_the_run_that_failed(
    current: str | None, previous: str | None
) -> None:
    cluster = Cluster(H100)
    cluster.behaviours["llama"] = ended(message="RuntimeError: See root cause above.")
    cluster.apply("llama", spec_of())
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    for text, of_previous_run in ((current, False), (previous, True)):
        if text is not None:
            cluster.api.set_log(NAMESPACE, pod, "vllm", text, previous=of_previous_run)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "OutOfMemory")


async def test_an_object_is_not_stalled_while_there_is_a_next_plan() -> None:
    cluster = Cluster(H100)
    server = FakeServer(lambda start: split(4) in start)
    seen: set[str] = set()

    def watched(pod: Object) -> Object:
        seen.update(cluster.conditions())
        return server(pod)

    cluster.behaviours["llama"] = watched
    cluster.apply("llama", spec_of())
    await pass_time(cluster)
    assert "Stalled" not in seen
    assert cluster.conditions() == SETTLED


async def test_more_devices_are_taken_where_no_setting_helps() -> None:
    server = FakeServer(lambda start: split(4) in start, NO_KV_CACHE)
    cluster = await started(server, H100)
    assert server.starts[-1] == [split(4)]
    assert [start[0] for start in server.starts] == sorted(start[0] for start in server.starts)
    assert cluster.conditions() == SETTLED


async def test_another_pool_is_taken_at_once_where_this_one_has_nothing_left() -> None:
    cluster = Cluster({**H100, "gpusPerNode": 2}, MI300X)
    price(cluster, "h100", "1")
    server = FakeServer(lambda start: "llama-mi300x" in cluster.deployments())
    cluster.behaviours["llama"] = server
    cluster.apply("llama", spec_of())
    await pass_time(cluster)
    assert split(2) in server.starts[-2]
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert "ran out of memory with TP 1, then" in place_of(cluster)["message"]


async def test_a_model_that_never_fits_is_given_up_with_its_history() -> None:
    server = FakeServer(lambda start: False)
    cluster = await started(server, H100)
    tried = len(server.starts)
    assert [start[0] for start in server.starts] == [split(1)] * 4 + [
        split(tensor) for tensor in (2, 2, 4, 4, 8, 8)
    ]
    assert cluster.conditions()["Placed"] == ("False", "OutOfMemory")
    message = cluster.message("Placed")
    assert message.startswith(
        "no plan is left to try; nvidia-h100-sxm-80gb: ran out of memory with"
    )
    assert "Stalled" in cluster.conditions()
    writes = write_count(cluster.api)
    await cluster.wait(3600)
    assert (len(server.starts), write_count(cluster.api)) == (tried, writes)


KEPT: Final = pytest.mark.parametrize(
    "words", [DEVICE_FULL, SMALL_KV_CACHE], ids=["a full device", "a small KV cache"]
)


async def test_a_plan_that_was_given_up_and_then_serves_is_ready_and_scales() -> None:
    """Another program has left the GPU, and the container starts at last."""
    cluster = await started(FakeServer(lambda start: False), {**H100, "count": 2})
    assert cluster.conditions()["Placed"] == ("False", "OutOfMemory")
    failed = len(cluster.status()["failedPlans"])
    cluster.behaviours["llama"] = ready
    await pass_time(cluster)
    assert cluster.conditions() == SETTLED
    assert len(cluster.status()["failedPlans"]) == failed - 1
    body = cluster.inference_deployment()
    cluster.apply("llama", {**body["spec"], "replicas": 2})
    await pass_time(cluster)
    assert cluster.status()["readyReplicas"] == 2


def shorter_batch(start: list[str]) -> bool:
    return "--max-num-batched-tokens=4096" in start


@KEPT
async def test_running_replicas_keep_adjusted_settings_when_the_status_is_lost(
    words: str,
) -> None:
    server = FakeServer(shorter_batch, words)
    cluster = await started(server, H100)
    assert cluster.conditions() == SETTLED
    body, writes = cluster.inference_deployment(), write_count(cluster.api)
    del body["status"]["failedPlans"]
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    await cluster.resync()
    assert write_count(cluster.api) == writes
    assert cluster.conditions() == SETTLED


@KEPT
async def test_running_replicas_keep_adjusted_settings_when_the_fleet_changes(
    words: str,
) -> None:
    server = FakeServer(shorter_batch, words)
    cluster = await started(server, H100)
    assert cluster.conditions() == SETTLED
    writes = write_count(cluster.api)
    cluster.join(**MI300X)
    await cluster.resync()
    assert write_count(cluster.api) == writes
    assert cluster.conditions() == SETTLED


async def test_adjusted_settings_end_when_the_user_changes_the_memory_need() -> None:
    server = FakeServer(shorter_batch)
    cluster = await started(server, H100)
    server.runs = lambda start: True
    cluster.apply("llama", spec_of(workload={"maxModelLen": 4096}))
    await cluster.settle()
    assert server.starts[2:] == []
    assert "adjustments" not in place_of(cluster)
    assert cluster.conditions() == SETTLED


async def test_with_manual_approval_the_next_plan_waits_for_approval() -> None:
    server = FakeServer(shorter_batch)
    cluster = await started(server, H100, approval="Manual")
    first = cluster.status()["proposedPlan"]["hash"]
    cluster.apply("llama", spec_of(approval="Manual", approvedPlan=first))
    await pass_time(cluster)
    assert server.starts == [[split(1)]]
    assert cluster.conditions()["Placed"] == ("False", "AwaitingApproval")
    following = cluster.status()["proposedPlan"]
    assert "it would change arguments (--max-num-batched-tokens)" in following["message"]
    cluster.apply("llama", spec_of(approval="Manual", approvedPlan=following["hash"]))
    await pass_time(cluster)
    assert cluster.conditions() == SETTLED
