"""A start of SGLang that ran out of memory is followed by one with lower settings."""

from typing import Any, Final

import pytest

from tests.support.fleets.placing import CATALOG, LLAMA_8B
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import ended, ready
from tonnage.fit.engines.sglang import SGLANG_MEMORY
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.questions.question import FitQuestion
from tonnage.placement.adjustments import (
    UNADJUSTED,
    EngineAdjustments,
    FailedStart,
    MemoryShortfall,
    ShortfallKind,
)
from tonnage.placement.oom_fallback.next_start import next_start

GIB: Final = 2**30
ALLOCATION: Final = MemoryShortfall(ShortfallKind.ALLOCATION, 2 * GIB, GIB)
NO_POOL: Final = MemoryShortfall(ShortfallKind.KV_CACHE, None, None)
CUDA = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    " capacity of 79.18 GiB of which 1.00 GiB is free.\n"
)


def after(
    *shortfalls: MemoryShortfall,
    device: str = "h100-sxm-80gb",
    context: int = 8192,
    engine: str | None = None,
    **options: Any,
) -> EngineAdjustments | None:
    """The settings of the start after starts of the engine that failed with these, one after the
    other."""
    accelerator = CATALOG.accelerator(device)
    assert accelerator.memory_bytes is not None
    given = EngineOptions("v0.32.0", context, **options)
    question = FitQuestion(
        LLAMA_8B,
        accelerator,
        accelerator.memory_bytes,
        Parallelism(),
        given,
        memory=SGLANG_MEMORY,
    )
    tried: list[FailedStart] = []
    for shortfall in shortfalls:
        start = next_start(question, tried, None, CATALOG)
        assert start is not None, tried
        devices = accelerator.id, accelerator.memory_bytes
        settings = Parallelism(), start.adjustments
        tried.append(FailedStart(*devices, *settings, shortfall, engine))
    start = next_start(question, tried, None, CATALOG)
    return start.adjustments if start else None


def test_a_full_device_gets_a_smaller_share_first_and_then_shorter_chunks() -> None:
    assert after(ALLOCATION) == EngineAdjustments(gpu_memory_utilization=0.79)
    assert after(ALLOCATION, ALLOCATION) == EngineAdjustments(0.75, None, 4096)
    assert after(*[ALLOCATION] * 4) is None


@pytest.mark.parametrize(
    ("engine", "want"),
    [
        (None, EngineAdjustments(gpu_memory_utilization=0.79)),
        ("sglang", EngineAdjustments(gpu_memory_utilization=0.79)),
        ("vllm", UNADJUSTED),
    ],
)
def test_starts_of_another_engine_say_nothing_of_this_one(
    engine: str | None, want: EngineAdjustments
) -> None:
    assert after(ALLOCATION, engine=engine) == want


def test_the_share_is_that_of_the_argument_which_aiter_lowers_as_well() -> None:
    short, long = (after(ALLOCATION, device="mi300x", context=length) for length in (8192, 32768))
    assert short == long == EngineAdjustments(gpu_memory_utilization=0.83)


def test_a_shortage_beyond_the_settings_leaves_only_other_devices() -> None:
    lacked = MemoryShortfall(ShortfallKind.ALLOCATION, 40 * GIB, 0)
    assert after(lacked) is None


def test_settings_of_the_user_stay() -> None:
    own = {"gpu_memory_utilization": 0.8, "max_num_batched_tokens": 4096}
    assert after(ALLOCATION, **own) is None


def test_a_pool_without_memory_gets_what_shorter_chunks_leave() -> None:
    missing = MemoryShortfall(ShortfallKind.KV_CACHE, GIB, 0)
    assert after(missing, context=1024) == EngineAdjustments(max_num_batched_tokens=4096)
    assert after(missing, missing, context=1024) is None


def is_adjusted(pod: Any) -> bool:
    return any("--mem-fraction-static" in each for each in pod["spec"]["containers"][0]["args"])


async def test_the_next_start_is_rendered_and_explained_in_the_words_of_sglang() -> None:
    cluster = Cluster(H100)
    dies = ended()
    cluster.behaviours["llama"] = lambda pod: ready(pod) if is_adjusted(pod) else dies(pod)
    cluster.apply("llama", spec_of(engine={"sglang": {}}))
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, "sglang", CUDA)
    await cluster.reconcile("llama")
    await cluster.wait(60)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    (pod,) = cluster.pods()
    assert "--mem-fraction-static=0.79" in pod["spec"]["containers"][0]["args"]
    (placement,) = cluster.status()["placements"]
    assert placement["adjustments"] == {"gpuMemoryUtilization": 0.79}
    assert "memFractionStatic 0.79" in cluster.message("Placed")
    assert "gpuMemoryUtilization" not in cluster.message("Placed")


@pytest.mark.parametrize("groups", [(H100, MI300X)])
async def test_another_pool_is_next_where_no_setting_is_left(groups: Any) -> None:
    cluster = Cluster(*groups)
    cluster.behaviours["llama"] = ended()
    cluster.apply("llama", spec_of(engine={"sglang": {"memFractionStatic": 0.8}}))
    await cluster.settle()
    first = cluster.status()["placements"][0]["pool"]
    pod = cluster.pods()[0]["metadata"]["name"]
    cluster.api.set_log(NAMESPACE, pod, "sglang", CUDA)
    await cluster.reconcile("llama")
    await cluster.settle()
    assert cluster.status()["placements"][0]["pool"] != first or (
        cluster.status()["placements"][0]["tensorParallelSize"] > 1
    )
