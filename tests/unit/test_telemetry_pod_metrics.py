"""What vLLM measured, asked of the pods themselves: once each start, in bounded time and memory."""

import asyncio
import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fake_clock import FakeClock
from tests.support.scripted_server import Answer, serving
from tonnage import delays
from tonnage.telemetry import pod_metrics
from tonnage.telemetry.cache import MeasuredCache
from tonnage.telemetry.pod_metrics import TASK_NAME, PodMetrics, read_page
from tonnage.telemetry.pods import ServingPod

PAGE = Path("tests/data/vllm-metrics/after-requests.txt").read_bytes()
REAL = MeasuredCache(524288, blocks=4096, block_tokens=128)


def line(tokens="90", engine="0", **labels):
    told = {"engine": engine, "kv_cache_size_tokens": tokens, **labels}
    inside = ",".join(f'{name}="{value}"' for name, value in told.items())
    return f"vllm:cache_config_info{{{inside}}} 1.0\n".encode()


def pod(server, name="llama-0", start="uid-0/0"):
    return ServingPod(name, start, server.url.removeprefix("http://"))


def test_the_page_of_a_real_vllm_is_read():
    assert read_page(PAGE) == REAL


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param('a="' + r"\"" * 100_000 + '"', id="quotes"),
        pytest.param(",".join(f'a{n}=""' for n in range(20_000)), id="labels"),
    ],
)
def test_a_line_that_the_parser_would_take_seconds_for_is_not_parsed(labels, monkeypatch):
    monkeypatch.setattr(pod_metrics, "text_string_to_metric_families", pytest.fail)
    assert read_page(f"vllm:cache_config_info{{{labels}}} 1\n".encode()) is None


def test_the_engines_of_one_server_are_added():
    page = line("40", "0", num_gpu_blocks="4") + line("30", "1", num_gpu_blocks="3")
    assert read_page(page) == MeasuredCache(70, blocks=7)


def test_a_number_of_blocks_that_was_given_is_no_measurement_of_memory():
    assert read_page(line(num_gpu_blocks_override="10")) == MeasuredCache(90, overridden=True)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html><body>not here</body></html>", id="a page for people"),
        pytest.param(line("None"), id="not sized yet"),
        pytest.param(line("40") + line("None", "1"), id="one engine is not sized yet"),
        pytest.param(line("9" * 400), id="a number that nothing could hold"),
        pytest.param(b"vllm:cache_config_info{", id="a line that is torn"),
        pytest.param(b'vllm:cache_config_info{a="b" 1.0\n', id="a brace that never closes"),
        pytest.param(b"vllm:cache_config_info{} many\n", id="a value that is none"),
        pytest.param(line() * 65, id="more engines than any server has"),
        pytest.param(b"\xff" + PAGE.replace(b"\n", b"\r\xff"), id="no text"),
    ],
)
def test_anything_else_is_no_opinion(page):
    assert read_page(page) is None


@given(st.binary(max_size=200))
def test_no_bytes_are_more_than_no_opinion(tail):
    read_page(b"vllm:cache_config_info{" + tail)


async def measure(source, *pods):
    """What is known at once, or when those that were asked have answered, or have not."""
    woken = asyncio.Event()
    known = await source.measure_caches(pods, woken.set)
    asked = [task for task in asyncio.all_tasks() if task.get_name() == TASK_NAME]
    await asyncio.gather(*asked)
    return await source.measure_caches(pods, woken.set) if woken.is_set() else known


async def test_each_start_of_a_container_is_asked_once():
    async with serving(Answer(body=line("90"))) as one, serving(Answer(body=line("80"))) as other:
        source = PodMetrics()
        for _ in range(3):
            both = await measure(source, pod(one), pod(other, "llama-1", "uid-1/0"))
            assert both == {"llama-0": MeasuredCache(90), "llama-1": MeasuredCache(80)}
        assert [asked.path for asked in one.asked + other.asked] == ["/metrics"] * 2
        await measure(source, pod(one, start="uid-0/1"))
        assert len(one.asked) == 2


async def test_a_pod_that_does_not_tell_is_left_alone_for_a_while():
    async with serving(Answer(status=503), Answer(body=line())) as server:
        clock = FakeClock()
        source = PodMetrics(clock=clock.monotonic)
        for _ in range(3):
            assert await measure(source, pod(server)) == {}
        assert len(server.asked) == 1
        clock.advance(delays.POD_METRICS_RETRY)
        assert await measure(source, pod(server)) == {"llama-0": MeasuredCache(90)}


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Answer(silent=True), id="it never answers"),
        pytest.param(Answer(body=PAGE + b"\n#" * 500_000), id="a page without end"),
        pytest.param(
            Answer(body=gzip.compress(PAGE), headers={"Content-Encoding": "gzip"}),
            id="packed though not asked",
        ),
    ],
)
async def test_a_hostile_pod_is_no_opinion(answer, monkeypatch):
    monkeypatch.setattr(delays, "POD_METRICS", 0.2)
    monkeypatch.setattr(pod_metrics, "MAX_BYTES", 100_000)
    async with serving(answer) as server:
        assert await measure(PodMetrics(), pod(server)) == {}
        assert len(server.asked) == 1


async def test_a_pod_that_sends_elsewhere_is_not_followed():
    elsewhere = Answer(302, headers={"Location": "/elsewhere"})
    async with serving(elsewhere, Answer(body=PAGE)) as server:
        assert await measure(PodMetrics(), pod(server)) == {}
        assert [asked.path for asked in server.asked] == ["/metrics"]


async def test_nobody_waits_for_an_answer():
    async with serving(Answer(silent=True)) as server:
        assert await PodMetrics().measure_caches([pod(server)], lambda: None) == {}


async def test_a_pod_without_an_address_is_not_asked():
    assert await measure(PodMetrics(), ServingPod("llama-0", "uid-0/0", None)) == {}


async def test_nobody_listens():
    assert await measure(PodMetrics(), ServingPod("llama-0", "u/0", "127.0.0.1:1")) == {}
