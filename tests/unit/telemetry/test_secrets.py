"""A Prometheus that repeats credentials in its answers does not make the operator log them."""

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.foreign import hostile_server
from tests.support.foreign.hostile_server import says, says_raw
from tonnage.controller.log_lines import configure_logging
from tonnage.telemetry.access import Access
from tonnage.telemetry.prometheus import PrometheusSource, QueryOutcome

SECRET = "planted and shapeless".replace(" ", "-")
QUOTING = SECRET.encode()

REPEATED = {
    "in an error": says(500, b'{"status": "error", "error": "' + QUOTING + b'"}'),
    "in a rejection of the query": says(400, b'{"errorType": "' + QUOTING + b'"}'),
    "in a page": says(200, b"<html>" + QUOTING),
    "in a result": says(200, b'{"data": {"result": [{"metric": "' + QUOTING + b'"}]}}'),
    "in a redirect": says(302, b"", f"Location: http://{SECRET}@127.0.0.1/"),
    "in a broken redirect": says(301, b"", f"Location: http://[{SECRET}"),
    "in an invalid header": says_raw(
        b"HTTP/1.1 200 OK\r\nX-Fine: 1\r\n" + QUOTING + b"\r\nX: 2\r\n\r\n"
    ),
    "in place of a status": says_raw(b"HTTP/1.1 " + QUOTING + b"\r\n\r\n"),
    "in place of HTTP": says_raw(QUOTING + b"\r\n\r\n"),
    "in a length": says_raw(b"HTTP/1.1 200 OK\r\nContent-Length: " + QUOTING + b"\r\n\r\n"),
    "in the size of a chunk": says_raw(
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + QUOTING + b"\r\n"
    ),
    "in a cookie": says(200, b"[]", f"Set-Cookie: {SECRET}={SECRET}; Domain={SECRET}"),
    "in a charset": says(200, b"[", f"Content-Type: text/html; charset={SECRET}"),
}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """The operator's log at level debug."""
    loggers = [logging.getLogger(name) for name in (None, "tonnage", "urllib3")]
    handlers, levels = loggers[0].handlers[:], [logger.level for logger in loggers]
    stream = io.StringIO()
    configure_logging("debug", "json", stream=stream)
    yield stream
    logging.captureWarnings(capture=False)
    loggers[0].handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.parametrize("say", [pytest.param(say, id=name) for name, say in REPEATED.items()])
@pytest.mark.parametrize("way", ["token", "password"])
async def test_repeated_credentials_are_not_logged(
    say: hostile_server.Say, way: str, log: io.StringIO, tmp_path: Path
) -> None:
    outcomes: list[QueryOutcome] = []
    token = tmp_path / "token"
    token.write_text(SECRET, encoding="utf-8")
    async with hostile_server.serving(say) as server:
        url = server.url if way == "token" else server.url.replace("//", f"//robot:{SECRET}@")
        access = Access(url, bearer_token_file=str(token) if way == "token" else None)
        source = PrometheusSource(access, 30.0, 15.0, outcomes.append)
        assert await source.ask("up") is None
    assert "authorization" in server.asked[0].headers
    assert SECRET not in repr(outcomes) + log.getvalue()
    assert log.getvalue(), "something is logged"
    assert SECRET not in repr(source)
