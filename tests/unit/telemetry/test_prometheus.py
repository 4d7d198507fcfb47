"""A Prometheus may be absent, slow or wrong; the source stays bounded and never raises."""

import asyncio
import gzip
import json
import logging
import socket
from pathlib import Path

import pytest
from requests.utils import DEFAULT_CA_BUNDLE_PATH

from tests.support.foreign import hostile_server
from tests.support.foreign.hostile_server import says, says_nothing, says_raw, says_without_end
from tonnage.telemetry.access import Access
from tonnage.telemetry.prometheus import (
    MAX_ANSWER_BYTES,
    CancellableSocket,
    PrometheusSource,
    QueryOutcome,
)
from tonnage.telemetry.series import Series

NOW = 1_800_000_000.0
RETRY_SECONDS = 15.0
LONG = 120.0
"""Seconds that no test waits for: a deadline that must not be reached."""


def vector(*series):
    data = {"resultType": "vector", "result": list(series)}
    return json.dumps({"status": "success", "data": data}).encode()


ONE = vector({"metric": {"pod": "a"}, "value": [NOW, "2.5"]})
JSON = "Content-Type: application/json"


class Clock:
    def __init__(self):
        self.now = 1000.0

    def __call__(self):
        return self.now


class Bench:
    """A source with a fake clock and the outcomes that it counted."""

    def __init__(self, url, *, deadline=LONG, **access):
        self.outcomes = []
        self.clock = Clock()
        self.source = PrometheusSource(
            Access(url, **access),
            deadline,
            RETRY_SECONDS,
            self.outcomes.append,
            clock=lambda: NOW,
            monotonic=self.clock,
        )

    async def ask(self, query="up"):
        return await self.source.ask(query)


async def outcome_of(say, **options):
    """The outcome of a query to a server that says this."""
    async with hostile_server.serving(say) as server:
        bench = Bench(server.url, **options)
        answer = await bench.ask()
        assert (answer is None) == (bench.outcomes != [QueryOutcome.ANSWERED])
        async with asyncio.timeout(LONG):
            await server.all_closed.wait()
    return bench.outcomes[0]


async def test_an_answer_is_read():
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        bench = Bench(server.url + "/")
        assert await bench.ask('up{pod="a"}') == (Series({"pod": "a"}, 2.5, NOW),)
    (request,) = server.asked
    assert request.target.startswith("/api/v1/query?")
    assert request.query["query"] == 'up{pod="a"}'
    assert request.query["timeout"] == "96s"
    assert request.query["partial_response"] == "false"
    assert request.query["deny_partial_response"] == "1"
    assert request.headers["user-agent"].startswith("tonnage/")
    assert "authorization" not in request.headers
    assert "cookie" not in request.headers


async def test_a_path_before_the_api_is_kept():
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        await Bench(server.url + "/prometheus/").ask()
    assert server.asked[0].target.startswith("/prometheus/api/v1/query?")


def prometheus_error(kind):
    return json.dumps({"status": "error", "errorType": kind, "error": "..."}).encode()


REFUSED = [
    pytest.param(says(401, b"who?"), QueryOutcome.UNAUTHORIZED, id="401"),
    pytest.param(says(403, b"no"), QueryOutcome.UNAUTHORIZED, id="403"),
    pytest.param(says(400, prometheus_error("bad_data")), QueryOutcome.QUERY_REFUSED, id="400"),
    pytest.param(says(414, b"<html>too long"), QueryOutcome.QUERY_REFUSED, id="a query too long"),
    pytest.param(says(422, prometheus_error("execution")), QueryOutcome.QUERY_REFUSED, id="422"),
    pytest.param(
        says(503, prometheus_error("timeout")), QueryOutcome.QUERY_REFUSED, id="slow query"
    ),
    pytest.param(says(503, prometheus_error("unavailable")), QueryOutcome.HTTP_ERROR, id="503"),
    pytest.param(says(503, b"[" * 100_000), QueryOutcome.HTTP_ERROR, id="503 with brackets"),
    pytest.param(says(404, b"404 page not found"), QueryOutcome.HTTP_ERROR, id="404"),
    pytest.param(says(429, b""), QueryOutcome.HTTP_ERROR, id="429"),
    pytest.param(says(204, b""), QueryOutcome.HTTP_ERROR, id="204"),
    pytest.param(says(200, b"<html>log in</html>"), QueryOutcome.NOT_UNDERSTOOD, id="a login page"),
    pytest.param(
        says(200, b"<html>", "Content-Type: text/html; charset=none"),
        QueryOutcome.NOT_UNDERSTOOD,
        id="a page in an unknown charset",
    ),
    pytest.param(says(200, b""), QueryOutcome.NOT_UNDERSTOOD, id="nothing"),
    pytest.param(says(200, b"[" * 200_000), QueryOutcome.NOT_UNDERSTOOD, id="brackets without end"),
    pytest.param(says(200, b"[]"), QueryOutcome.NOT_UNDERSTOOD, id="a list"),
    pytest.param(says(200, b"null"), QueryOutcome.NOT_UNDERSTOOD, id="null"),
    pytest.param(says(200, b"{}"), QueryOutcome.NOT_UNDERSTOOD, id="no data"),
    pytest.param(says(200, b'{"data": null}'), QueryOutcome.NOT_UNDERSTOOD, id="null data"),
    pytest.param(says(200, b"9" * 5000), QueryOutcome.NOT_UNDERSTOOD, id="a number of many digits"),
    pytest.param(says(200, bytes(range(256)) * 4000), QueryOutcome.NOT_UNDERSTOOD, id="noise"),
    pytest.param(
        says(200, gzip.compress(ONE), "Content-Encoding: gzip"),
        QueryOutcome.NOT_UNDERSTOOD,
        id="compressed although the operator accepts identity only, so it is not decompressed",
    ),
    pytest.param(says_raw(b"SSH-2.0-OpenSSH\r\n"), QueryOutcome.UNREACHABLE, id="another protocol"),
    pytest.param(says_raw(b""), QueryOutcome.UNREACHABLE, id="hangs up"),
    pytest.param(
        says_raw(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        QueryOutcome.NOT_UNDERSTOOD,
        id="hangs up in the middle",
    ),
    pytest.param(
        says_raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
        QueryOutcome.UNREACHABLE,
        id="chunks of no size",
    ),
    pytest.param(
        says_without_end(b"HTTP/1.1 200 OK\r\n", b"X-More: " + b"x" * 9000 + b"\r\n"),
        QueryOutcome.UNREACHABLE,
        id="headers without end",
    ),
]


@pytest.mark.parametrize(("say", "want"), REFUSED)
async def test_each_failure_has_its_outcome(say, want):
    assert await outcome_of(say) is want


@pytest.mark.parametrize(
    "begin",
    [
        pytest.param(b"HTTP/1.1 200 OK\r\n\r\n", id="to the end of the connection"),
        pytest.param(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", id="of 100 GB"),
        pytest.param(b"HTTP/1.1 503 X\r\n\r\n", id="of an error"),
    ],
)
async def test_an_endless_answer_is_rejected_while_it_arrives(begin):
    assert await outcome_of(says_without_end(begin, b" " * 10_000)) is QueryOutcome.TOO_LARGE


async def test_no_more_is_read_than_one_byte_beyond_the_bound():
    async def say(writer):
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b" " * (MAX_ANSWER_BYTES + 1))
        await says_nothing(writer)

    assert await outcome_of(say) is QueryOutcome.TOO_LARGE


async def test_the_bound_applies_to_the_bytes_as_sent():
    bomb = gzip.compress(b" " * 2 * MAX_ANSWER_BYTES)
    assert await outcome_of(says(200, bomb, "Content-Encoding: gzip")) is (
        QueryOutcome.NOT_UNDERSTOOD
    )


@pytest.mark.parametrize("path", ["/a/../prometheus", "/%7eprometheus", "/pro metheus"])
async def test_a_path_that_requests_rewrites_evades_no_bound(path):
    async with hostile_server.serving(says(200, b" " * (MAX_ANSWER_BYTES + 1))) as server:
        bench = Bench(server.url + path)
        assert await bench.ask() is None
    assert bench.outcomes == [QueryOutcome.TOO_LARGE]


async def test_an_answer_just_within_the_bound_is_read():
    body = ONE + b" " * (MAX_ANSWER_BYTES - len(ONE))
    assert await outcome_of(says(200, body, JSON)) is QueryOutcome.ANSWERED


async def test_an_answer_is_utf_8_for_any_charset_header():
    say = says(200, ONE, "Content-Type: application/json; charset=utf-16")
    assert await outcome_of(say) is QueryOutcome.ANSWERED


async def test_a_redirect_is_not_followed():
    async with hostile_server.serving(says(200, ONE, JSON)) as other:
        say = says(302, b"", f"Location: {other.url}/api/v1/query")
        assert await outcome_of(say) is QueryOutcome.REDIRECTED
    assert other.asked == []


SLOW = {
    "says nothing": says_nothing,
    "trickles a header": says_without_end(b"HTTP/1.1 200 OK\r\nX: ", b"x", 0.01),
    "trickles a body": says_without_end(
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b" ", 0.01
    ),
    "trickles a body to its end": says_without_end(b"HTTP/1.0 200 OK\r\n\r\n", b" ", 0.01),
    "trickles chunks": says_without_end(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n", 0.01
    ),
}


@pytest.mark.parametrize("say", [pytest.param(say, id=name) for name, say in SLOW.items()])
async def test_a_slow_server_takes_the_deadline_and_frees_its_threads(say, monkeypatch):
    async with hostile_server.serving(say) as server:
        bench = Bench(server.url, deadline=0.1)
        async with asyncio.timeout(LONG):
            # More queries than threads: some never get a thread.
            assert await asyncio.gather(*(bench.ask() for _ in range(8))) == [None] * 8
            await server.all_closed.wait()
        assert set(bench.outcomes) == {QueryOutcome.TIMEOUT}
        server.say = says(200, ONE, JSON)
        bench.clock.now += RETRY_SECONDS
        monkeypatch.setattr(bench.source, "_deadline_seconds", LONG)
        assert await bench.ask() is not None, "a thread is free"


async def test_a_cancelled_query_frees_its_thread():
    async with hostile_server.serving(says_nothing) as server:
        query = asyncio.create_task(Bench(server.url).ask())
        await server.heard.wait()
        query.cancel()
        with pytest.raises(asyncio.CancelledError):
            await query
        async with asyncio.timeout(LONG):
            await server.all_closed.wait()


def test_a_socket_that_connects_after_the_deadline_is_closed():
    ours, theirs = socket.socketpair()
    connection = CancellableSocket()
    connection.cancel()
    with theirs, pytest.raises(ConnectionAbortedError):
        connection.attach(ours)
    assert ours.fileno() == -1


@pytest.mark.parametrize(
    "url",
    [
        pytest.param("http://127.0.0.1:1", id="connection refused"),
        pytest.param("http://no-such-host.invalid:9090", id="no such name"),
    ],
)
async def test_an_absent_server_is_unreachable(url):
    bench = Bench(url)
    assert await bench.ask() is None
    assert bench.outcomes == [QueryOutcome.UNREACHABLE]


async def test_https_never_falls_back_to_http():
    received = []

    async def answer(reader, writer):
        received.append(await reader.read(1))
        writer.write(b"HTTP/1.0 400 Client sent an HTTP request to an HTTPS server\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        bench = Bench(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        assert await bench.ask() is None
    assert bench.outcomes == [QueryOutcome.TLS]
    assert received == [b"\x16"], "the start of a TLS handshake"


async def test_a_failed_server_gets_one_query_per_retry_interval():
    async with hostile_server.serving(says(503, b"starting")) as server:
        bench = Bench(server.url)
        for _ in range(10):
            await bench.ask()
        assert len(server.asked) == 1
        assert bench.outcomes == [QueryOutcome.HTTP_ERROR] + [QueryOutcome.HELD_BACK] * 9
        bench.clock.now += RETRY_SECONDS
        await asyncio.gather(*(bench.ask() for _ in range(10)))
        assert len(server.asked) == 2
        server.say = says(200, ONE, JSON)
        bench.clock.now += RETRY_SECONDS
        assert await bench.ask() is not None
        assert None not in await asyncio.gather(*(bench.ask() for _ in range(10)))


@pytest.mark.parametrize(
    "say",
    [
        pytest.param(says(400, prometheus_error("bad_data")), id="a rejected query"),
        pytest.param(says_without_end(b"HTTP/1.1 200 OK\r\n\r\n", b" " * 99_999), id="too large"),
    ],
)
async def test_one_bad_query_holds_back_no_other(say):
    async with hostile_server.serving(say) as server:
        bench = Bench(server.url)
        assert await bench.ask() is None
        server.say = says(200, ONE, JSON)
        assert await bench.ask() is not None


async def test_a_query_that_prometheus_ends_as_too_slow_holds_back_no_other():
    """A user names the metric of waiting requests, and may name one with a million series."""
    too_slow = says(503, prometheus_error("timeout"))

    async def end_the_query(writer):
        await asyncio.sleep(float(server.asked[-1].query["timeout"].removesuffix("s")))
        await too_slow(writer)

    async with hostile_server.serving(end_the_query) as server:
        bench = Bench(server.url, deadline=2.0)
        assert await bench.ask() is None
        assert bench.outcomes == [QueryOutcome.QUERY_REFUSED]
        server.say = says(200, ONE, JSON)
        assert await bench.ask() is not None


async def test_a_change_is_logged_once(caplog):
    caplog.set_level(logging.INFO, "tonnage")
    async with hostile_server.serving(says(503, b"")) as server:
        bench = Bench(server.url.replace("//", "//robot:planted-password@"))
        for _ in range(3):
            await bench.ask()
            bench.clock.now += RETRY_SECONDS
        server.say = says(200, ONE, JSON)
        await bench.ask()
        await bench.ask()
    assert [record.message for record in caplog.records] == [
        "Prometheus does not answer",
        "Prometheus answers again",
    ]
    first = caplog.records[0]
    assert (first.url, first.outcome, first.why) == (server.url, "http_error", "status 503")


async def test_credentials_of_the_url_are_sent_in_the_header_only():
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        await Bench(server.url.replace("//", "//robot:pa%2Fss@")).ask()
    assert server.asked[0].headers["authorization"] == "Basic cm9ib3Q6cGEvc3M="
    assert "robot" not in server.asked[0].target


async def test_a_token_is_read_again_for_each_query(tmp_path):
    token = tmp_path / "token"
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        bench = Bench(server.url, bearer_token_file=str(token))
        for text in ("first-token\n", "second-token"):
            token.write_text(text)
            await bench.ask()
    assert [request.headers["authorization"] for request in server.asked] == [
        "Bearer first-token",
        "Bearer second-token",
    ]


@pytest.mark.parametrize("content", [None, b"", b"two words", b"a\r\nX: y", b"\xff", b"x" * 20_000])
async def test_without_a_valid_token_no_query_is_sent(tmp_path, content, caplog):
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        bench = Bench(server.url, bearer_token_file=str(token))
        assert await bench.ask() is None
    assert server.asked == []
    assert bench.outcomes == [QueryOutcome.FILE_UNREADABLE]
    assert str(token) in caplog.records[0].why


async def test_an_invalid_ca_file_is_named(tmp_path, caplog):
    ca = tmp_path / "ca.crt"
    ca.write_text("planted")
    bench = Bench("https://127.0.0.1:1", ca_file=str(ca))
    assert await bench.ask() is None
    assert bench.outcomes == [QueryOutcome.FILE_UNREADABLE]
    assert f"{ca} holds no certificates" in caplog.records[0].why


def test_a_ca_file_is_parsed_again_only_when_it_changes(tmp_path):
    ca, public = tmp_path / "ca.crt", Path(DEFAULT_CA_BUNDLE_PATH).read_bytes()
    end = b"-----END CERTIFICATE-----\n"
    ca.write_bytes("# Bücher & Söhne\n".encode() + public)
    access = Access("https://p", ca_file=str(ca))
    before = access.tls()
    assert access.tls() is before
    assert len(before.get_ca_certs()) > 1
    ca.write_bytes(public.partition(end)[0] + end)
    assert len(access.tls().get_ca_certs()) == 1


async def test_each_query_has_the_tenant_header():
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        await Bench(server.url, tenant_header=("X-Scope-OrgID", "team-a")).ask()
    assert server.asked[0].headers["x-scope-orgid"] == "team-a"


async def test_a_proxy_of_the_environment_is_used(monkeypatch):
    async with hostile_server.serving(says(200, ONE, JSON)) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert await Bench("http://prometheus.example:9090").ask() is not None
        monkeypatch.setenv("NO_PROXY", "prometheus.invalid")
        assert await Bench("http://prometheus.invalid:9090").ask() is None
    (request,) = proxy.asked
    assert request.target.startswith("http://prometheus.example:9090/api/v1/query?")


async def test_a_proxy_that_hangs_frees_the_thread(monkeypatch):
    async with hostile_server.serving(says_nothing) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        assert await Bench("http://prometheus.example", deadline=0.1).ask() is None
        async with asyncio.timeout(LONG):
            await proxy.all_closed.wait()


async def test_netrc_is_ignored(tmp_path, monkeypatch):
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login robot password planted\n")
    monkeypatch.setenv("NETRC", str(netrc))
    async with hostile_server.serving(says(200, ONE, JSON)) as server:
        await Bench(server.url).ask()
    assert "authorization" not in server.asked[0].headers
