"""A Prometheus may be absent, slow or wrong; only a fresh and readable answer is an opinion."""

import asyncio
import json
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from tonnage.telemetry import prometheus
from tonnage.telemetry.prometheus import MeasuredCache, PrometheusSource

NOW = 1_800_000_000.0


@contextmanager
def serving(answer):
    """A server on loopback that gives `answer(query)`, a (status, body) pair, to every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            status, body = answer(parse_qs(urlsplit(self.path).query)["query"][0])
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.005,), daemon=True)
    thread.start()
    source = PrometheusSource(f"http://127.0.0.1:{server.server_port}/")
    try:
        yield source
    finally:
        source.close()
        server.shutdown()
        server.server_close()
        thread.join()


def series(pod="llama-0", tokens="524288", engine="0", sampled=NOW - 20):
    labels = {"pod": pod, "engine": engine, "namespace": "chat", "kv_cache_size_tokens": tokens}
    return {"metric": labels, "value": [NOW, str(sampled)]}


def vector(*found):
    data = {"resultType": "vector", "result": list(found)}
    return 200, json.dumps({"status": "success", "data": data}).encode()


async def measure(answer, pods=("llama-0",)):
    with serving(lambda _: answer) as source:
        return await source.measure_cache("chat", pods)


@pytest.mark.parametrize(
    ("found", "want_tokens"),
    [
        pytest.param([series()], 524288, id="one replica"),
        pytest.param([series("a", "90"), series("b", "80")], 80, id="the least of two replicas"),
        pytest.param(
            [series(engine="0", tokens="40"), series(engine="1", tokens="30")],
            70,
            id="the sum of two data-parallel engines",
        ),
        pytest.param(
            [series(tokens="10", sampled=NOW - 60), series(tokens="20", sampled=NOW - 5)],
            20,
            id="the newer of two series that a restart left",
        ),
        pytest.param([series("a", "90"), series("b", "None")], 90, id="one that is not known yet"),
        pytest.param([series("a", "90"), series("b", "1", sampled=NOW - 600)], 90, id="one stale"),
    ],
)
async def test_a_fresh_answer_is_read(found, want_tokens):
    assert await measure(vector(*found)) == MeasuredCache(want_tokens)


NO_OPINION = {
    "nothing is known of the pods": vector(),
    "the cache is not sized yet": vector(series(tokens="None")),
    "zero tokens": vector(series(tokens="0")),
    "a negative number": vector(series(tokens="-5")),
    "a number that nothing could hold": vector(series(tokens="9" * 400)),
    "a stale sample": vector(series(sampled=NOW - 600)),
    "NaN": vector(series(sampled="NaN")),
    "infinity": vector(series(sampled="-Inf")),
    "a time that is no number": vector(series(sampled="soon")),
    "an evaluation time beyond floats": vector({**series(), "value": [10**400, "1"]}),
    "a value without a time": vector({**series(), "value": ["1"]}),
    "a metric that is a list": vector({**series(), "metric": []}),
    "labels that are numbers": vector(
        {**series(), "metric": {"pod": 1, "kv_cache_size_tokens": 2}}
    ),
    "a result that is an object": (200, b'{"data": {"result": {"a": 1}}}'),
    "data that is null": (200, b'{"status": "error", "data": null}'),
    "an answer that is a list": (200, b"[]"),
    "no data": (200, b"{}"),
    "a login page": (200, b"<html>Please log in</html>"),
    "nothing at all": (200, b""),
    "brackets without end": (200, b"[" * 200_000),
    "a server error": (503, b"{}"),
    "a query that is refused": (400, b'{"status": "error", "errorType": "bad_data"}'),
}


@pytest.mark.parametrize("answer", [pytest.param(a, id=name) for name, a in NO_OPINION.items()])
async def test_anything_else_is_no_opinion(answer):
    assert await measure(answer) is None


async def test_the_query_names_exactly_the_pods_of_the_deployment():
    asked = []
    with serving(lambda query: asked.append(query) or vector()) as source:
        await source.measure_cache("chat", ["llama-0", "llama.b-1", 'x"} or vector(1) #'])
    assert asked == [
        'timestamp(vllm:cache_config_info{namespace="chat",pod=~"llama-0|llama\\\\.b-1"})'
    ]


async def test_without_pods_nothing_is_asked():
    asked = []
    with serving(lambda query: asked.append(query) or vector()) as source:
        assert await source.measure_cache("chat", []) is None
    assert asked == []


async def test_a_server_that_is_not_there_is_no_opinion():
    source = PrometheusSource("http://127.0.0.1:1")
    assert await source.measure_cache("chat", ["llama-0"]) is None
    source.close()


async def test_a_server_that_hangs_costs_the_deadline_and_never_blocks_the_loop(monkeypatch):
    monkeypatch.setattr(prometheus, "_DEADLINE_SECONDS", 0.1)
    released = threading.Event()
    with serving(lambda _: released.wait(5) and vector(series())) as source:
        started = time.monotonic()
        answers = await asyncio.gather(*(source.measure_cache("chat", ["a"]) for _ in range(8)))
        took = time.monotonic() - started
        released.set()
    assert answers == [None] * 8
    assert took < 2
