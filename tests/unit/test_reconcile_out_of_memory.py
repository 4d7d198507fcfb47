"""Replicas that die of memory when they start: the next plan is taken, until one runs or none is
left."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.support.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of, write_count
from tests.support.controllers import Behaviour, crashing, ready
from tests.support.pricing import place_of, price
from tests.support.serving import SETTLED
from tonnage.api.names import VLLM_CONTAINER
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object

NO_ROOM: Final = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB. GPU 0 has a total"
    " capacity of 79.19 GiB of which 12.50 MiB is free."
)
SMALL_KV_CACHE: Final = (
    "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV"
    " cache is needed, which is larger than the available KV cache memory (0.6 GiB)."
)
NO_KV_CACHE: Final = "ValueError: No available memory for the cache blocks. Try increasing"
TENSOR: Final = "--tensor-parallel-size="
KNOBS: Final = ("--gpu-memory-utilization=", "--max-num-seqs=", "--max-num-batched-tokens=")


class FussyServer:
    """A vLLM server that dies of memory unless it is started just so; it notes how it was."""

    def __init__(self, runs: Callable[[list[str]], bool], words: str = NO_ROOM) -> None:
        self.starts: list[list[str]] = []
        self.runs, self._dies = runs, crashing(message=words)

    def __call__(self, pod: Object) -> Object:
        container = pod["spec"]["containers"][0]
        assert container["name"] == VLLM_CONTAINER
        start = [found for found in container["args"] if found.startswith((TENSOR, *KNOBS))]
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
    """Much less than anybody waits for anything."""
    for _ in range(20):
        await cluster.wait(1)


def split(tensor: int) -> str:
    return f"{TENSOR}{tensor}"


async def test_three_starts_that_die_find_the_plan_that_runs() -> None:
    server = FussyServer(lambda start: "--gpu-memory-utilization=0.88" in start)
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


async def test_a_start_that_died_is_told_in_the_words_of_vllm_until_the_next_one() -> None:
    cluster = Cluster(H100)
    cluster.behaviours["llama"] = crashing(1)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, VLLM_CONTAINER, NO_ROOM, previous=True)
    await cluster.reconcile("llama")
    assert cluster.conditions()["Ready"] == ("False", "OutOfMemory")
    assert "Tried to allocate 256.00 MiB" in cluster.message("Ready")
    assert cluster.conditions()["Progressing"] == ("True", "OutOfMemory")
    await cluster.wait(1)
    assert cluster.status()["failedPlans"][0]["message"] == NO_ROOM
    assert place_of(cluster)["adjustments"] == {"maxNumBatchedTokens": 4096}


async def test_nobody_takes_an_object_for_failed_while_there_is_a_next_plan() -> None:
    cluster = Cluster(H100)
    server = FussyServer(lambda start: split(4) in start)
    told: set[str] = set()

    def watched(pod: Object) -> Object:
        told.update(cluster.conditions())
        return server(pod)

    cluster.behaviours["llama"] = watched
    cluster.apply("llama", spec_of())
    await pass_time(cluster)
    assert "Stalled" not in told
    assert cluster.conditions() == SETTLED


async def test_more_devices_are_taken_where_no_setting_helps() -> None:
    server = FussyServer(lambda start: split(4) in start, NO_KV_CACHE)
    cluster = await started(server, H100)
    assert server.starts[-1] == [split(4)]
    assert [start[0] for start in server.starts] == sorted(start[0] for start in server.starts)
    assert cluster.conditions() == SETTLED


async def test_another_pool_is_taken_at_once_where_this_one_has_nothing_left() -> None:
    cluster = Cluster({**H100, "gpusPerNode": 2}, MI300X)
    price(cluster, "h100", "1")
    server = FussyServer(lambda start: "llama-mi300x" in cluster.deployments())
    cluster.behaviours["llama"] = server
    cluster.apply("llama", spec_of())
    await pass_time(cluster)
    assert split(2) in server.starts[-2]
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.conditions() == SETTLED
    assert "died of memory with TP 1, then" in place_of(cluster)["message"]


async def test_a_model_that_never_fits_is_given_up_with_its_history() -> None:
    server = FussyServer(lambda start: False)
    cluster = await started(server, H100)
    tried = len(server.starts)
    assert [start[0] for start in server.starts] == [split(1)] * 4 + [
        split(tensor) for tensor in (2, 2, 4, 4, 8, 8)
    ]
    assert cluster.conditions()["Placed"] == ("False", "OutOfMemory")
    message = cluster.message("Placed")
    assert message.startswith("no plan is left to try; nvidia-h100-sxm-80gb: died of memory with")
    assert "Stalled" in cluster.conditions()
    writes = write_count(cluster.api)
    await cluster.wait(3600)
    assert (len(server.starts), write_count(cluster.api)) == (tried, writes)


KEPT: Final = pytest.mark.parametrize(
    "words", [NO_ROOM, SMALL_KV_CACHE], ids=["a full device", "a small KV cache"]
)


def shorter_batch(start: list[str]) -> bool:
    return "--max-num-batched-tokens=4096" in start


@KEPT
async def test_what_runs_with_settings_of_tonnage_is_kept_though_the_status_was_lost(
    words: str,
) -> None:
    server = FussyServer(shorter_batch, words)
    cluster = await started(server, H100)
    assert cluster.conditions() == SETTLED
    found, writes = cluster.inference_deployment(), write_count(cluster.api)
    del found["status"]["failedPlans"]
    cluster.api.put(INFERENCE_DEPLOYMENTS, found)
    await cluster.resync()
    assert write_count(cluster.api) == writes
    assert cluster.conditions() == SETTLED


@KEPT
async def test_what_runs_with_settings_of_tonnage_is_kept_when_the_fleet_changes(
    words: str,
) -> None:
    server = FussyServer(shorter_batch, words)
    cluster = await started(server, H100)
    assert cluster.conditions() == SETTLED
    writes = write_count(cluster.api)
    cluster.join(**MI300X)
    await cluster.resync()
    assert write_count(cluster.api) == writes
    assert cluster.conditions() == SETTLED


async def test_settings_of_tonnage_go_when_the_user_changes_what_memory_needs() -> None:
    server = FussyServer(shorter_batch)
    cluster = await started(server, H100)
    server.runs = lambda start: True
    cluster.apply("llama", spec_of(workload={"maxModelLen": 4096}))
    await cluster.settle()
    assert server.starts[2:] == []
    assert "adjustments" not in place_of(cluster)
    assert cluster.conditions() == SETTLED


async def test_where_a_person_approves_plans_the_next_one_waits_for_that() -> None:
    server = FussyServer(shorter_batch)
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
