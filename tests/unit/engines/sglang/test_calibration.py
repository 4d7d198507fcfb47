"""What SGLang measured corrects later predictions of SGLang, and of no other engine."""

from typing import Any

import pytest

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import ended
from tests.support.in_memory.in_memory_corrections import InMemoryCorrections
from tonnage.engines.metrics import MeasuredCache
from tonnage.fit.calibration.corrections import KnownCorrections, MemoryCorrection
from tonnage.fit.calibration.entries import read_entries, write_entry

KIND = "PredictionAccurate"
SGLANG: dict[str, Any] = {"sglang": {}}
GIB = 2**30


async def serving(engine: dict[str, Any], *groups: Any) -> Cluster:
    cluster = Cluster(*(groups or (H100,)))
    cluster.apply("llama", spec_of(engine=engine))
    await cluster.settle()
    return cluster


async def measure(cluster: Cluster, share: float, name: str = "llama") -> int:
    """The engine measures this share of the predicted KV cache."""
    tokens = int(placement(cluster, name)["kvCacheTokens"] * share)
    cluster.measured[name] = MeasuredCache(tokens)
    await cluster.resync()
    return tokens


def placement(cluster: Cluster, name: str = "llama") -> dict[str, Any]:
    placement: dict[str, Any] = cluster.status(name)["placements"][0]
    return placement


def known(cluster: Cluster) -> tuple[MemoryCorrection, ...]:
    return cluster.correction_registry.known().entries


async def test_the_next_prediction_is_what_was_measured() -> None:
    cluster = await serving(SGLANG)
    tokens = await measure(cluster, 0.8)
    assert cluster.conditions()[KIND] == ("False", "MeasuredLess")
    (correction,) = known(cluster)
    served = correction.key.served
    assert (served.engine, served.version, correction.of) == ("sglang", "0.5.23", "chat/llama")
    cluster.apply("next", spec_of(engine=SGLANG))
    await cluster.settle()
    predicted = placement(cluster, "next")
    assert abs(predicted["kvCacheTokens"] - tokens) <= 1
    assert predicted["memory"]["correctionGiB"] == round(correction.extra_bytes / GIB, 1)
    cluster.measured["next"] = MeasuredCache(predicted["kvCacheTokens"])
    await cluster.resync()
    assert cluster.conditions("next")[KIND] == ("True", "AsPredicted")
    assert known(cluster) == (correction,)


async def test_a_correction_of_one_engine_says_nothing_of_the_other() -> None:
    cluster = await serving(SGLANG)
    await measure(cluster, 0.8)
    cluster.apply("other", spec_of(engine={}))
    await cluster.settle()
    assert "correctionGiB" not in placement(cluster, "other")["memory"]
    await measure(cluster, 0.5, "other")
    assert {one.key.served.engine for one in known(cluster)} == {"sglang", "vllm"}


@pytest.mark.parametrize(("before", "after"), [({}, SGLANG), (SGLANG, {})])
async def test_another_engine_starts_with_its_own_corrections(
    before: dict[str, Any], after: dict[str, Any]
) -> None:
    """Replicas that run were placed by a correction; those of the other engine are not."""
    cluster = await serving(before)
    await measure(cluster, 0.8)
    (correction,) = known(cluster)
    cluster.apply("llama", spec_of(engine=before, workload={"maxModelLen": 16384}))
    await cluster.settle()
    cluster.apply("next", spec_of(engine=before))
    await cluster.settle()
    assert placement(cluster, "next")["memory"]["correctionGiB"]
    cluster.apply("next", spec_of(engine=after))
    await cluster.settle()
    assert "correctionGiB" not in placement(cluster, "next")["memory"]
    assert known(cluster) == (correction,)


@pytest.mark.parametrize(
    "argument",
    [
        "--cuda-graph-max-bs-decode=8",
        "--cuda-graph-bs-decode=8",
        "--cuda-graph-backend-decode=disabled",
        "--disable-cuda-graph",
        "--disable-hybrid-swa-memory",
        "--moe-a2a-backend=deepep",
        "--enable-symm-mem",
    ],
)
async def test_arguments_that_are_not_counted_yield_no_correction(argument: str) -> None:
    cluster = await serving({"sglang": {"extraArgs": [argument]}})
    await measure(cluster, 0.8)
    assert cluster.conditions()[KIND] == ("False", "MeasuredLess")
    assert known(cluster) == ()


async def test_a_start_without_memory_for_its_pool_yields_no_correction() -> None:
    """Other processes may have held the memory, which vLLM would have said."""
    cluster = Cluster(H100)
    cluster.behaviours["llama"] = ended()
    cluster.apply("llama", spec_of(engine=SGLANG))
    await cluster.settle()
    pod = cluster.pods()[0]["metadata"]["name"]
    log = (
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static. Current"
        " value: mem_fraction_static=0.83\n"
    )
    cluster.api.set_log(NAMESPACE, pod, "sglang", log)
    await cluster.reconcile("llama")
    assert cluster.status()["failedPlans"][0]["reason"] == "OutOfMemory"
    assert known(cluster) == ()


async def test_a_person_may_write_one() -> None:
    measured = await serving(SGLANG, MI300X)
    await measure(measured, 0.8)
    (correction,) = known(measured)
    text = write_entry(correction)
    assert "engine: sglang\nengineVersion: 0.5.23\n" in text
    assert "vllmVersion" not in text
    read = read_entries({"any": text}, {"mi300x"}).corrections
    assert read.entries == (correction,)
    cluster = Cluster(MI300X)
    cluster.correction_registry = InMemoryCorrections(KnownCorrections(read.entries))
    cluster.start_operator()
    cluster.apply("llama", spec_of(engine=SGLANG))
    await cluster.settle()
    assert placement(cluster)["memory"]["correctionGiB"]
