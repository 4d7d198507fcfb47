"""What vLLM measured beside what was predicted: in status, in a condition that makes nothing less
ready, and as a lesson that moves nobody who runs."""

from dataclasses import replace

import pytest

from tests.support.cluster import H100, MI300X, Cluster, spec_of
from tests.support.controllers import crashing, ready
from tests.support.shapes import load_shape
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.fit.corrections import LearntCorrections, Origin
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.question import FitQuestion, answer
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.learning import KeptInMind
from tonnage.telemetry.cache import MeasuredCache

CATALOG = load_catalog()
KIND = "PredictionAccurate"
GIB = 2**30


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
    """vLLM has so large a part of the KV cache that was predicted."""
    tokens = int(placement(cluster, name)["kvCacheTokens"] * share)
    cluster.measured[name] = MeasuredCache(tokens, **facts)
    await cluster.resync()
    return tokens


async def test_without_a_measurement_nothing_is_said():
    cluster = await serving(MI300X)
    assert KIND not in cluster.conditions()
    assert "measured" not in placement(cluster)


async def test_a_measurement_stands_beside_the_prediction():
    cluster = await serving(MI300X)
    tokens = await measure(cluster, 1, blocks=81920, block_tokens=16)
    assert cluster.conditions()[KIND] == ("True", "AsPredicted")
    told = placement(cluster)
    assert told["measured"] == {
        "kvCacheTokens": tokens,
        "kvCacheGiB": told["memory"]["kvCacheGiB"],
        "blocks": 81920,
        "blockTokens": 16,
    }


@pytest.mark.parametrize(
    ("share", "want"), [(0.8, "MeasuredLess"), (1.012, "MeasuredMore"), (1.001, "AsPredicted")]
)
async def test_a_prediction_that_did_not_hold_is_told_with_figures(share, want):
    cluster = await serving(MI300X)
    tokens = await measure(cluster, share)
    assert cluster.conditions()[KIND] == (str(want == "AsPredicted"), want)
    assert f"a replica holds {tokens:,} tokens (" in cluster.message(KIND)
    assert f"predicted were {placement(cluster)['kvCacheTokens']:,} (" in cluster.message(KIND)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    assert "Stalled" not in cluster.conditions()
    assert bool(cluster.lessons.known().entries) == (want != "AsPredicted")


async def test_the_same_measurement_writes_nothing_more():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    cluster.api.calls.clear()
    cluster.clock.advance(3600)
    await cluster.resync()
    assert [call for call in cluster.api.calls if call.verb not in ("get", "list")] == []


async def test_what_is_not_known_any_more_was_known():
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


async def test_blocks_that_a_user_set_say_nothing_of_memory():
    cluster = await serving(MI300X)
    tokens = await measure(cluster, 0.5, overridden=True)
    assert KIND not in cluster.conditions()
    assert placement(cluster)["measuredKvCacheTokens"] == tokens
    assert cluster.lessons.known().entries == ()


async def test_the_next_prediction_is_what_was_measured():
    cluster = await serving(MI300X)
    tokens = await measure(cluster, 0.8)
    (lesson,) = cluster.lessons.known().entries
    assert (lesson.of, lesson.origin) == ("chat/llama", Origin.MEASUREMENT)
    cluster.apply("next", spec_of())
    await cluster.settle()
    told = placement(cluster, "next")
    assert abs(told["kvCacheTokens"] - tokens) < 16  # what was measured was no whole block
    assert told["memory"]["correctionGiB"] == round(lesson.extra_bytes / GIB, 1)
    cluster.measured["next"] = MeasuredCache(told["kvCacheTokens"])
    await cluster.resync()
    assert cluster.conditions("next")[KIND] == ("True", "AsPredicted")
    assert cluster.lessons.known().entries == (lesson,)


async def test_a_lesson_moves_and_restarts_nobody_who_runs():
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


async def test_replicas_that_were_placed_by_a_lesson_outlive_it():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    cluster.apply("next", spec_of())
    await cluster.settle()
    pods, tokens = template(cluster), placement(cluster, "next")["kvCacheTokens"]
    cluster.measured.clear()
    cluster.lessons = KeptInMind()
    cluster.start_operator()
    await cluster.resync()
    assert (template(cluster), placement(cluster, "next")["kvCacheTokens"]) == (pods, tokens)


async def test_what_cannot_have_been_measured_teaches_nothing():
    cluster = await serving(MI300X)
    await measure(cluster, 100)
    assert cluster.conditions()[KIND] == ("False", "MeasuredMore")
    assert cluster.lessons.known().entries == ()


@pytest.mark.parametrize(("needed", "learnt"), [("2.0", True), ("9999999.0", False)])
async def test_a_log_that_lacks_more_than_a_device_has_teaches_nothing(needed, learnt):
    cluster = Cluster(MI300X)
    words = (
        "ValueError: To serve at least one request with the model's max seq len (8192),"
        f" ({needed} GiB KV cache is needed, which is larger than the available KV cache memory"
        " (1.0 GiB)."
    )
    cluster.behaviours["llama"] = crashing(message=words)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await cluster.wait(60)
    assert cluster.status("llama")["failedPlans"][0]["reason"] == "OutOfMemory"
    assert bool(cluster.lessons.known().entries) is learnt


async def test_an_image_of_the_users_own_is_compared_and_teaches_nobody():
    cluster = await serving(MI300X, engine={"vllm": {"image": "acme/vllm:v0.32.0"}})
    await measure(cluster, 0.8)
    assert cluster.conditions()[KIND] == ("False", "MeasuredLess")
    assert cluster.lessons.known().entries == ()


async def test_what_is_known_already_is_no_lesson():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    (lesson,) = cluster.lessons.known().entries
    persons = replace(lesson, extra_bytes=lesson.extra_bytes + 1, origin=Origin.PERSON)
    cluster.lessons = KeptInMind(LearntCorrections((persons,)))
    cluster.start_operator()
    await cluster.resync()
    assert cluster.lessons.known().entries == (persons,)


async def test_a_lesson_counts_in_its_own_namespace_alone():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    (lesson,) = cluster.lessons.known().entries
    cluster.measured.clear()
    theirs = replace(lesson, of="search/llama")
    cluster.lessons = KeptInMind(LearntCorrections((theirs,)))
    cluster.start_operator()
    cluster.apply("next", spec_of())
    await cluster.settle()
    assert "correctionGiB" not in placement(cluster, "next")["memory"]
    await measure(cluster, 0.9, "next")
    kept, own = cluster.lessons.known().entries
    assert kept == theirs
    assert own.of == "chat/next"
    assert 0 < own.extra_bytes < theirs.extra_bytes


async def test_a_lesson_without_a_teacher_counts_everywhere():
    cluster = await serving(MI300X)
    await measure(cluster, 0.8)
    (lesson,) = cluster.lessons.known().entries
    cluster.lessons = KeptInMind(LearntCorrections((replace(lesson, of=None),)))
    cluster.start_operator()
    cluster.apply("next", spec_of())
    await cluster.settle()
    assert placement(cluster, "next")["memory"]["correctionGiB"] > 0


async def test_a_start_that_found_too_little_for_its_cache_teaches_how_much_it_took():
    words = (
        "ValueError: To serve at least one request with the model's max seq len (8192), (1.0 GiB KV"
        " cache is needed, which is larger than the available KV cache memory (0.6 GiB)."
    )
    dies = crashing(message=words)
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = lambda pod: ready(pod) if is_adjusted(pod) else dies(pod)
    cluster.apply("llama", spec_of())
    await cluster.settle()
    await cluster.wait(60)
    assert cluster.conditions()["Ready"] == ("True", "ReplicasReady")
    (lesson,) = cluster.lessons.known().entries
    assert (lesson.of, lesson.origin) == ("chat/llama", Origin.FAILURE)
    assert (lesson.key.accelerator, lesson.key.tensor) == ("mi300x", 1)
    plain = judge_alone(lesson.key.accelerator)
    assert lesson.extra_bytes == pytest.approx(plain - 0.6 * GIB, abs=GIB / 100)


def is_adjusted(pod):
    return any("--max-num" in argument for argument in pod["spec"]["containers"][0]["args"])


def judge_alone(accelerator):
    """Bytes that the KV cache would have by the calculation alone."""
    card = CATALOG.accelerator(accelerator)
    checkpoint = Checkpoint(load_shape("llama-3.1-8b"))
    options = EngineOptions(f"v{CATALOG.default_release}", 8192)
    question = FitQuestion(checkpoint, card, card.memory_bytes, Parallelism(), options)
    return answer(question, CATALOG).account.kv_cache_bytes
