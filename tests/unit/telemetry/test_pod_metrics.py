"""The KV cache from the pods themselves: one query per start, in bounded time and memory."""

import asyncio
import gzip
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.faults.fake_clock import FakeClock
from tests.support.foreign.scripted_server import Answer, serving
from tonnage import delays
from tonnage.engines.metrics import MeasuredCache
from tonnage.telemetry import pod_metrics
from tonnage.telemetry.pod_metrics import TASK_NAME, PodMetrics, read_page
from tonnage.telemetry.pods import ServingPod

PAGE = Path("tests/data/vllm-metrics/after-requests.txt").read_bytes()
REAL = MeasuredCache(524288, blocks=4096, block_tokens=128)


def line(tokens="90", engine="0", **labels):
    values = {"engine": engine, "kv_cache_size_tokens": tokens, **labels}
    text = ",".join(f'{name}="{value}"' for name, value in values.items())
    return f"vllm:cache_config_info{{{text}}} 1.0\n".encode()


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


def test_the_gpus_of_one_rank_share_their_cache():
    """SGLang shows it for each GPU with --enable-metrics-for-all-schedulers."""
    tokens = {("0", 0): 400, ("0", 1): 390, ("1", 2): 300, ("1", 3): 300}
    page = "".join(
        f'sglang:max_total_num_tokens{{dp_rank="{rank}",tp_rank="{gpu}"}} {number}.0\n'
        for (rank, gpu), number in tokens.items()
    )
    assert read_page(page.encode(), "sglang") == MeasuredCache(690)
    alone = page.replace('dp_rank="0",', "").replace('dp_rank="1",', "")
    assert read_page(alone.encode(), "sglang") == MeasuredCache(300)


def test_an_overridden_number_of_blocks_is_marked():
    assert read_page(line(num_gpu_blocks_override="10")) == MeasuredCache(90, overridden=True)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"<html><body>not here</body></html>", id="a page for people"),
        pytest.param(line("None"), id="not sized yet"),
        pytest.param(line("40") + line("None", "1"), id="one engine is not sized yet"),
        pytest.param(line("9" * 400), id="an impossibly large number"),
        pytest.param(b"vllm:cache_config_info{", id="a truncated line"),
        pytest.param(b'vllm:cache_config_info{a="b" 1.0\n', id="a brace that never closes"),
        pytest.param(b"vllm:cache_config_info{} many\n", id="an invalid value"),
        pytest.param(line() * 65, id="more engines than any server has"),
        pytest.param(b"\xff" + PAGE.replace(b"\n", b"\r\xff"), id="not text"),
    ],
)
def test_any_other_page_gives_no_cache(page):
    assert read_page(page) is None


LABELS = [b'kv_cache_size_tokens="', b'num_gpu_blocks="', b'block_size="', b'engine="']
PIECES = st.sampled_from([*LABELS, b"0", b"3", b"-", b"9" * 20, b'",', b'"} 1.0\n', b"{", b"\\"])


@given(st.binary(max_size=200) | st.lists(PIECES, max_size=30).map(b"".join))
@example(b'kv_cache_size_tokens="9",num_gpu_blocks="3"} 1.0\n')
@example(b'kv_cache_size_tokens="9",num_gpu_blocks="0"} 1.0\n')
@example(b'kv_cache_size_tokens="9",num_gpu_blocks="-3"} 1.0\n')
def test_any_bytes_give_a_positive_cache_or_none(tail):
    cache = read_page(b"vllm:cache_config_info{" + tail)
    assert cache is None or cache.kv_cache_tokens > 0
    assert cache is None or cache.blocks is None or cache.blocks > 0


async def measure(source, *pods):
    """The caches after the started queries have ended."""
    woken = asyncio.Event()
    caches = await source.measure_caches(pods, woken.set)
    queries = [task for task in asyncio.all_tasks() if task.get_name() == TASK_NAME]
    await asyncio.gather(*queries)
    return await source.measure_caches(pods, woken.set) if woken.is_set() else caches


async def test_each_container_start_is_queried_once():
    async with serving(Answer(body=line("90"))) as one, serving(Answer(body=line("80"))) as other:
        source = PodMetrics()
        for _ in range(3):
            both = await measure(source, pod(one), pod(other, "llama-1", "uid-1/0"))
            assert both == {"llama-0": MeasuredCache(90), "llama-1": MeasuredCache(80)}
        assert [request.path for request in one.asked + other.asked] == ["/metrics"] * 2
        await measure(source, pod(one, start="uid-0/1"))
        assert len(one.asked) == 2


async def test_a_pod_that_gives_no_metrics_is_queried_again_after_a_delay():
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
        pytest.param(Answer(body=PAGE + b"\n#" * 500_000), id="a page without end"),
        pytest.param(
            Answer(body=gzip.compress(PAGE), headers={"Content-Encoding": "gzip"}),
            id="compressed although not accepted",
        ),
    ],
)
async def test_a_hostile_pod_gives_no_cache(answer, monkeypatch):
    monkeypatch.setattr(delays, "POD_METRICS", 60.0)
    monkeypatch.setattr(pod_metrics, "MAX_BYTES", 100_000)
    async with serving(answer) as server:
        assert await measure(PodMetrics(), pod(server)) == {}
        assert len(server.asked) == 1


async def test_a_pod_that_never_answers_gives_no_cache(monkeypatch):
    monkeypatch.setattr(delays, "POD_METRICS", 0.2)
    async with serving(Answer(silent=True)) as server:
        assert await measure(PodMetrics(), pod(server)) == {}
        assert len(server.asked) <= 1  # none, where to connect takes so long


async def test_a_redirect_is_not_followed():
    elsewhere = Answer(302, headers={"Location": "/elsewhere"})
    async with serving(elsewhere, Answer(body=PAGE)) as server:
        assert await measure(PodMetrics(), pod(server)) == {}
        assert [request.path for request in server.asked] == ["/metrics"]


async def test_the_caller_does_not_wait_for_an_answer():
    async with serving(Answer(silent=True)) as server:
        assert await PodMetrics().measure_caches([pod(server)], lambda: None) == {}


async def test_a_pod_without_an_address_is_not_queried():
    assert await measure(PodMetrics(), ServingPod("llama-0", "uid-0/0", None)) == {}


async def test_a_refused_connection_gives_no_cache():
    assert await measure(PodMetrics(), ServingPod("llama-0", "u/0", "127.0.0.1:1")) == {}
