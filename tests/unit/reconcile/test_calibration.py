"""What vLLM measured next to the prediction: in status, in a condition that makes no object less
ready, and as a correction that moves no running replica."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from accuracy.records import models
from tests.support.engines.shapes import load_shape
from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import crashing, ready
from tests.support.in_memory.in_memory_corrections import InMemoryCorrections
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.engines.metrics import MeasuredCache
from tonnage.fit.calibration.corrections import KnownCorrections, Origin
from tonnage.fit.engines.vllm import VLLM_MEMORY
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.questions.question import FitQuestion, answer
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.telemetry.pod_metrics import read_page

CATALOG = load_catalog()
KIND = "PredictionAccurate"
GIB = 2**30
H200_PAGE = Path("tests/data/vllm-metrics/h200-under-load.txt").read_text()


def placement(cluster, name="llama"):
    return cluster.status(name)["placements"][0]


def template(cluster):
    return [
        (body["metadata"]["name"], body["spec"]["template"])
        for body in cluster.api.objects(DEPLOYMENTS)
    ]


async def serving(*groups, name="llama", **spec):
    cluster = Cluster(*groups)
    cluster.apply(name, spec_of(**spec))
    await cluster.settle()
    assert cluster.conditions(name)["Ready"] == ("True", "ReplicasReady")
    return cluster


async def measure(cluster, share, name="llama", **facts):
    """vLLM measures this share of the predicted KV cache."""
    tokens = int(placement(cluster, name)["kvCacheTokens"] * share)
    cluster.measured[name] = MeasuredCache(tokens, **facts)
    await cluster.resync()
    return tokens


async def test_without_a_measurement_there_is_no_condition():
    cluster = await serving(MI300X)
    assert KIND not in cluster.conditions()
    assert "measured" not in placement(cluster)


async def test_what_vllm_measured_on_an_h200_is_as_predicted():
    """A served Qwen3-0.6B, by the rendered command, and what its /metrics said under load."""
    assert read_page(H200_PAGE.encode()) is None, "vLLM 0.23 exports blocks, but no tokens"
    blocks, block_tokens = (
        int(re.search(rf'[{{,]{label}="(\d+)"', H200_PAGE)[1])
        for label in ("num_gpu_blocks", "block_size")
    )
    cluster = Cluster({"name": "h200", "accelerator": "h200-sxm-141gb"})
    spec = spec_of(engine={"vllm": {"version": "v0.23.0"}})
    spec["model"]["source"]["inline"]["config"] = models()["Qwen/Qwen3-0.6B"].config
    cluster.apply("llama", spec)
    await cluster.settle()
    tokens = blocks * block_tokens
    cluster.measured["llama"] = MeasuredCache(tokens, blocks=blocks, block_tokens=block_tokens)
    await cluster.resync()
    assert cluster.conditions()[KIND] == ("True", "AsPredicted")
    assert placement(cluster)["kvCacheTokens"] == pytest.approx(tokens, rel=0.01)


async def test_a_measurement_is_reported_next_to_the_prediction():
    cluster = await serving(MI300X)
    tokens = await measure(cluster, 1, blocks=81920, block_tokens=16)
    assert cluster.conditions()[KIND] == ("True", "AsPredicted")
    reported = placement(cluster)
    assert reported["measured"] == {
        "kvCacheTokens": tokens,
        "kvCacheGiB": reported["memory"]["kvCacheGiB"],
        "blocks": 81920,
        "blockTokens": 16,
    }


@pytest.mark.parametrize(
    ("share", "want"), [(0.8, "MeasuredLess"), (1.012, "MeasuredMore"), (1.001, "AsPredicted")]
)
async def test_a_prediction_that_did_not_hold_is_reported_with_figures(share, want):
    cluster = await serving(MI300X)
    tokens = await measure(cluster, share)
    assert cluster.conditions()[KIND] == (str(want == "AsPredicted"), want)
    assert f"a replica holds {tokens:,} tokens (" in cluster.message(KIND)
    assert f"the prediction was {placement(cluster)['kvCacheTokens']:,} (" in cluster.message(KIND)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert "Stalled" not in cluster.conditions()
    assert bool(cluster.correction_registry.known().entries) == (want != "AsPredicted")


async def test_the_same_measurement_writes_nothing_more():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    cluster.api.calls.clear()
    cluster.clock.advance(3600)
    await cluster.resync()
    assert [call for call in cluster.api.calls if call.verb not in ("get", "list")] == []


async def test_a_known_measurement_outlives_its_source():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    before = cluster.status()
    cluster.measured.clear()
    await cluster.resync()
    assert cluster.status() == before


async def test_another_plan_was_not_measured_yet():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    cluster.measured.clear()
    cluster.apply("llama", spec_of(engine={"vllm": {"maxNumBatchedTokens": 2048}}))
    await cluster.settle()
    assert KIND not in cluster.conditions()
    assert "measured" not in placement(cluster)


async def test_blocks_set_by_a_user_yield_no_correction():
    cluster = await serving(MI300X)
    tokens = await measure(cluster, 0.5, overridden=True)
    assert KIND not in cluster.conditions()
    assert placement(cluster)["measuredKvCacheTokens"] == tokens
    assert cluster.correction_registry.known().entries == ()


async def test_the_next_prediction_is_what_was_measured():
    cluster = await serving(MI300X)
    tokens = await measure(cluster, 0.8)
    (correction,) = cluster.correction_registry.known().entries
    assert (correction.of, correction.origin) == ("chat/llama", Origin.MEASUREMENT)
    cluster.apply("next", spec_of())
    await cluster.settle()
    predicted = placement(cluster, "next")
    assert abs(predicted["kvCacheTokens"] - tokens) < 16  # the measurement was no whole block
    assert predicted["memory"]["correctionGiB"] == round(correction.extra_bytes / GIB, 1)
    cluster.measured["next"] = MeasuredCache(predicted["kvCacheTokens"])
    await cluster.resync()
    assert cluster.conditions("next")[KIND] == ("True", "AsPredicted")
    assert cluster.correction_registry.known().entries == (correction,)


async def test_a_correction_moves_and_restarts_no_running_replica():
    cluster = await serving(MI300X, H100, workload={"maxModelLen": 131072})
    pool, before = placement(cluster)["pool"], template(cluster)
    await measure(cluster, 0.01)
    await cluster.wait(24 * 3600)
    await cluster.resync()
    assert (placement(cluster)["pool"], template(cluster)) == (pool, before)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    cluster.apply("next", spec_of(workload={"maxModelLen": 131072}))
    await cluster.settle()
    assert placement(cluster, "next")["memory"].get("correctionGiB") is None
    assert placement(cluster, "next")["pool"] != pool or (
        placement(cluster, "next")["tensorParallelSize"] != placement(cluster)["tensorParallelSize"]
    )


async def test_replicas_placed_by_a_correction_outlive_it():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    cluster.apply("next", spec_of())
    await cluster.settle()
    pods, tokens = template(cluster), placement(cluster, "next")["kvCacheTokens"]
    cluster.measured.clear()
    cluster.correction_registry = InMemoryCorrections()
    cluster.start_operator()
    await cluster.resync()
    assert (template(cluster), placement(cluster, "next")["kvCacheTokens"]) == (pods, tokens)


async def test_an_impossible_measurement_yields_no_correction():
    cluster = await serving(MI300X)
    await measure(cluster, 100)
    assert cluster.conditions()[KIND] == ("False", "MeasuredMore")
    assert cluster.correction_registry.known().entries == ()


@pytest.mark.parametrize(("needed", "is_corrected"), [("2.0", True), ("9999999.0", False)])
async def test_a_shortfall_above_the_memory_of_a_device_yields_no_correction(needed, is_corrected):
    cluster = Cluster(MI300X)
    log = (
        "ValueError: To serve at least one request with the model's max seq len (8192),"
        f" ({needed} GiB KV cache is needed, which is larger than the available KV cache memory"
        " (1.0 GiB)."
    )
    cluster.behaviours["llama"] = crashing(message=log)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await cluster.wait(60)
    assert cluster.status("llama")["failedPlans"][0]["reason"] == "OutOfMemory"
    assert bool(cluster.correction_registry.known().entries) is is_corrected


async def test_a_users_own_image_is_compared_and_yields_no_correction():
    cluster = await serving(MI300X, engine={"vllm": {"image": "acme/vllm:v0.32.0"}})
    await measure(cluster, 0.8)
    assert cluster.conditions()[KIND] == ("False", "MeasuredLess")
    assert cluster.correction_registry.known().entries == ()


async def test_a_known_correction_is_not_replaced():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    (correction,) = cluster.correction_registry.known().entries
    own = replace(correction, extra_bytes=correction.extra_bytes + 1, origin=Origin.PERSON)
    cluster.correction_registry = InMemoryCorrections(KnownCorrections((own,)))
    cluster.start_operator()
    await cluster.resync()
    assert cluster.correction_registry.known().entries == (own,)


async def test_a_correction_counts_only_in_its_own_namespace():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    (correction,) = cluster.correction_registry.known().entries
    cluster.measured.clear()
    foreign = replace(correction, of="search/llama")
    cluster.correction_registry = InMemoryCorrections(KnownCorrections((foreign,)))
    cluster.start_operator()
    cluster.apply("next", spec_of())
    await cluster.settle()
    assert "correctionGiB" not in placement(cluster, "next")["memory"]
    await measure(cluster, 0.9, "next")
    kept, own = cluster.correction_registry.known().entries
    assert kept == foreign
    assert own.of == "chat/next"
    assert 0 < own.extra_bytes < foreign.extra_bytes


async def test_a_correction_without_a_source_counts_everywhere():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    (correction,) = cluster.correction_registry.known().entries
    cluster.correction_registry = InMemoryCorrections(
        KnownCorrections((replace(correction, of=None),))
    )
    cluster.start_operator()
    cluster.apply("next", spec_of())
    await cluster.settle()
    assert placement(cluster, "next")["memory"]["correctionGiB"] > 0


async def test_a_start_without_memory_for_its_cache_yields_a_correction():
    log = (
        "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV"
        " cache is needed, which is larger than the available KV cache memory (0.6 GiB)."
    )
    dies = crashing(message=log)
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = lambda pod: ready(pod) if is_adjusted(pod) else dies(pod)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await cluster.wait(60)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    (correction,) = cluster.correction_registry.known().entries
    assert (correction.of, correction.origin) == ("chat/llama", Origin.FAILURE)
    assert (correction.key.accelerator, correction.key.tensor) == ("mi300x", 1)
    predicted_bytes = predict_kv_bytes(correction.key.accelerator)
    assert correction.extra_bytes == pytest.approx(predicted_bytes - 0.6 * GIB, abs=GIB / 100)


def is_adjusted(pod):
    return any("--max-num" in argument for argument in pod["spec"]["containers"][0]["args"])


def predict_kv_bytes(accelerator):
    """Bytes that the KV cache would have by the calculation alone."""
    card = CATALOG.accelerator(accelerator)
    checkpoint = Checkpoint(load_shape("llama-3.1-8b"))
    options = EngineOptions(f"v{CATALOG.default_release}", 8192)
    question = FitQuestion(
        checkpoint, card, card.memory_bytes, Parallelism(), options, memory=VLLM_MEMORY
    )
    return answer(question, CATALOG).account.kv_cache_bytes
