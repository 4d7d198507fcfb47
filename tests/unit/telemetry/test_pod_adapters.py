"""Adapters of pods over HTTP: bounded reads of foreign lists, and calls only where they belong."""

import asyncio
import json
import math
from typing import Any

import pytest

from tests.support.faults.fake_clock import FakeClock
from tests.support.foreign.scripted_server import Answer, ScriptedServer, serving
from tonnage import delays
from tonnage.telemetry import pod_adapters
from tonnage.telemetry.pod_adapters import TASK_NAME, PodAdapters
from tonnage.telemetry.pods import ServingPod
from tonnage.telemetry.served_adapters import AdapterCall, PodCalls, ServedAdapters

SQL = AdapterCall("sql", "/adapters/sql")


def models(**adapters: str) -> dict[str, Any]:
    """What vLLM 0.32.0 answers, with the fields that matter and some of the others."""
    base = {"id": "llama", "object": "model", "root": "acme/llama", "parent": None}
    listed = [{"id": name, "root": root, "parent": "llama"} for name, root in adapters.items()]
    return {"object": "list", "data": [base, *listed]}


def pod(server: ScriptedServer, start: str = "uid-0/0", engine: str = "") -> ServingPod:
    return ServingPod("llama-0", start, server.url.removeprefix("http://"), engine)


async def finish() -> None:
    await asyncio.gather(*(task for task in asyncio.all_tasks() if task.get_name() == TASK_NAME))


async def read(source: PodAdapters, *pods: ServingPod, refresh: float = 300.0) -> Any:
    source.read(pods, "llama", refresh, lambda: None)
    await finish()
    return source.read(pods, "llama", refresh, lambda: None).get("llama-0")


async def update(source: PodAdapters, target: ServingPod, *calls: AdapterCall) -> None:
    source.update([PodCalls(target, "llama", calls)], lambda: None)
    await finish()


async def test_a_pod_is_asked_once_until_the_answer_is_old() -> None:
    async with serving(Answer(body=models()), Answer(body=models(sql="/x"))) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        for _ in range(3):
            assert await read(source, pod(server)) == ServedAdapters({})
        assert [request.path for request in server.asked] == ["/v1/models"]
        clock.advance(300.0)
        assert await read(source, pod(server)) == ServedAdapters({"sql": "/x"})


async def test_the_caller_does_not_wait_and_is_woken_by_a_new_answer_only() -> None:
    woken: list[bool] = []
    async with serving(Answer(body=models())) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        for want in ({}, {"llama-0": ServedAdapters({})}):
            got = source.read([pod(server)], "llama", 300.0, lambda: woken.append(True))
            assert got == want
            await finish()
            clock.advance(300.0)
    assert woken == [True]


@pytest.mark.parametrize(
    ("answer", "want"),
    [
        (Answer(status=401), "asks for an API key"),
        (Answer(status=503), "answers 503"),
        (Answer(302, headers={"Location": "/elsewhere"}), "answers 302"),
        (Answer(silent=True), "does not answer"),
        (Answer(body=b" " * 20_000), "too long"),
    ],
)
async def test_a_pod_without_a_list_has_a_problem_in_the_words_of_the_operator(
    answer: Answer, want: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delays, "POD_MODELS", 0.2 if answer.silent else 60.0)
    monkeypatch.setattr(pod_adapters, "MAX_BYTES", 10_000)
    async with serving(answer) as server:
        served = await read(PodAdapters(), pod(server))
    assert served.adapters is None
    assert want in served.problem


@pytest.mark.parametrize(("engine", "prefix"), [("vllm", "/v1"), ("sglang", ""), ("", "/v1")])
async def test_calls_are_made_in_order_and_the_list_is_read_again(engine: str, prefix: str) -> None:
    answers = [Answer(body=models(old="/old"))] * 2 + [Answer(body=b"Success")] * 2
    async with serving(*answers, Answer(body=models(sql="/adapters/sql"))) as server:
        source, asked = PodAdapters(), pod(server, engine=engine)
        await read(source, asked)
        await update(source, asked, AdapterCall("old"), SQL)
        got = await read(source, asked)
    assert got == ServedAdapters({"sql": "/adapters/sql"})
    assert [(request.path, request.body) for request in server.asked[2:4]] == [
        (f"{prefix}/unload_lora_adapter", {"lora_name": "old"}),
        (f"{prefix}/load_lora_adapter", {"lora_name": "sql", "lora_path": "/adapters/sql"}),
    ]


@pytest.mark.parametrize(
    ("status", "want"),
    [(404, "no files of an adapter at /adapters/sql"), (500, "answers 500"), (307, "answers 307")],
)
async def test_a_failed_call_is_explained_and_made_again_after_a_growing_delay(
    status: int, want: str
) -> None:
    listed, failure = Answer(body=models()), Answer(status=status, body=b"secret")
    async with serving(*[listed, listed, failure, listed] + [listed, failure] * 9) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        await read(source, pod(server))
        await update(source, pod(server), SQL)
        served = await read(source, pod(server))
        assert served.adapters == {}
        assert want in served.failed["sql"]
        assert "secret" not in str(served)
        asked = len(server.asked)
        await update(source, pod(server), SQL)
        assert len(server.asked) == asked
        clock.advance(delays.ADAPTER_FIRST_RETRY)
        await update(source, pod(server), SQL)
        assert len(server.asked) > asked


async def test_a_pod_that_now_serves_another_model_gets_no_calls() -> None:
    other = Answer(body=json.dumps(models()).replace("llama", "mixtral").encode())
    async with serving(Answer(body=models()), other) as server:
        source = PodAdapters()
        await read(source, pod(server))
        await update(source, pod(server), SQL)
        served = await read(source, pod(server))
    assert "/v1/load_lora_adapter" not in {request.path for request in server.asked}
    assert served.problem == "does not serve llama"


async def test_a_pod_that_never_answered_gets_no_calls() -> None:
    async with serving(Answer(body=models())) as server:
        await update(PodAdapters(), pod(server), SQL)
        assert server.asked == []


async def test_a_process_without_the_lease_makes_no_calls() -> None:
    async with serving(Answer(body=models())) as server:
        source = PodAdapters(lambda: False)
        await read(source, pod(server))
        await update(source, pod(server), SQL)
        assert {request.path for request in server.asked} == {"/v1/models"}


async def test_a_pod_that_does_not_answer_a_call_gets_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(delays, "ADAPTER_LOAD", 0.2)
    listed, legal = Answer(body=models()), AdapterCall("legal", "/adapters/legal")
    async with serving(listed, listed, Answer(silent=True), listed) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        await read(source, pod(server))
        await update(source, pod(server), SQL, legal)
        served = await read(source, pod(server))
        assert served.failed.keys() == {"sql"}
        assert "does not answer on /v1/load_lora_adapter" in served.failed["sql"]
        clock.advance(delays.ADAPTER_FIRST_RETRY)
        await update(source, pod(server), SQL, legal)
    loads = [request.body["lora_name"] for request in server.asked if request.body]
    assert loads == ["sql", "legal", "sql"], "what failed comes last"


async def test_pods_that_hang_delay_no_list_of_another_one() -> None:
    listed = Answer(body=models())
    async with serving(listed) as healthy, serving(*[listed] * 20, Answer(silent=True)) as hanging:
        source = PodAdapters()
        many = [pod(hanging, start=f"uid-{index}/0") for index in range(10)]
        source.read(many, "llama", 300.0, lambda: None)
        await finish()
        source.update([PodCalls(each, "llama", (SQL,)) for each in many], lambda: None)
        updates = [task for task in asyncio.all_tasks() if task.get_name() == TASK_NAME]
        answered = asyncio.Event()
        source.read([pod(healthy, start="other/0")], "llama", 300.0, answered.set)
        await asyncio.wait_for(answered.wait(), 5)
        for task in updates:
            task.cancel()


async def test_a_corrected_spec_does_not_wait_for_the_calls_that_failed() -> None:
    listed, failure = Answer(body=models()), Answer(status=500)
    async with serving(listed, listed, failure, listed) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        await read(source, pod(server))
        await update(source, pod(server), SQL)
        clock.advance(delays.ADAPTER_PAUSE)
        await update(source, pod(server), SQL)
        corrected = AdapterCall("sql", "/adapters/v2")
        await update(source, pod(server), corrected)
    loads = [request.body["lora_path"] for request in server.asked if request.body]
    assert loads == ["/adapters/sql", "/adapters/v2"]


async def test_a_pod_that_is_silent_after_its_calls_is_asked_again_soon() -> None:
    listed, loaded = Answer(body=models()), Answer(body=models(sql="/adapters/sql"))
    answers = [listed, listed, Answer(body=b"Success"), Answer(status=503)]
    async with serving(*answers, loaded) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        await read(source, pod(server))
        await update(source, pod(server), SQL)
        assert (await read(source, pod(server))).adapters is None
        clock.advance(delays.ADAPTER_FIRST_RETRY)
        assert (await read(source, pod(server))).adapters == {"sql": "/adapters/sql"}


async def test_a_second_update_waits_for_the_first() -> None:
    listed = Answer(body=models())
    async with serving(listed, listed, Answer(silent=True)) as server:
        source = PodAdapters()
        await read(source, pod(server))
        changes = [PodCalls(pod(server), "llama", (SQL,))]
        for _ in range(5):
            source.update(changes, lambda: None)
            await asyncio.sleep(0)
        tasks = [task for task in asyncio.all_tasks() if task.get_name() == TASK_NAME]
        assert len(tasks) == 1
        tasks[0].cancel()


@pytest.mark.parametrize(
    ("refresh", "wait"),
    [(300.0, delays.ADAPTER_FIRST_RETRY), (math.inf, delays.POD_METRICS_RETRY)],
    ids=["adapters change", "adapters stay"],
)
async def test_a_silent_pod_is_asked_again_later_where_its_adapters_are_known(
    refresh: float, wait: float
) -> None:
    async with serving(Answer(status=503)) as server:
        clock = FakeClock()
        source = PodAdapters(clock=clock.monotonic)
        await read(source, pod(server), refresh=refresh)
        clock.advance(wait - 1)
        await read(source, pod(server), refresh=refresh)
        assert len(server.asked) == 1
        clock.advance(1)
        await read(source, pod(server), refresh=refresh)
        assert len(server.asked) == 2
