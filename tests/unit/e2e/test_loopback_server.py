"""The HTTP server of doubles: on loopback alone, and gone at its end."""

import socket
from http.server import BaseHTTPRequestHandler
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from e2e.harness.loopback_server import LoopbackServer


class Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"here")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def read(url: str) -> bytes:
    with urlopen(url, timeout=60) as answer:
        content: bytes = answer.read()
        return content


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.77"])
def test_it_answers_while_it_is_entered(host: str) -> None:
    with LoopbackServer(Handler, host) as server:
        assert server.url == f"http://{server.address}"
        assert server.address.startswith(f"{host}:")
        assert read(server.url) == b"here"
    with pytest.raises(URLError):
        read(server.url)
    server.stop()


def test_its_port_is_free_at_its_end_though_it_never_answered() -> None:
    server = LoopbackServer(Handler, "127.0.0.77")  # no other test takes a port of this address
    host, port = server.address.split(":")
    server.stop()
    with socket.create_server((host, int(port))):
        pass


@pytest.mark.parametrize("host", ["0.0.0.0", "10.0.0.1"])
def test_other_machines_never_reach_it(host: str) -> None:
    with pytest.raises(ValueError, match=f"{host} is no address of loopback"):
        LoopbackServer(Handler, host)


@pytest.mark.parametrize(
    ("error", "is_printed"), [(BrokenPipeError("gone"), False), (ValueError("a mistake"), True)]
)
def test_only_errors_of_the_handler_are_printed(
    error: Exception, is_printed: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    class Failing(Handler):
        def do_GET(self) -> None:
            raise error

    with LoopbackServer(Failing) as server, pytest.raises(ConnectionError):
        read(server.url)
    assert (str(error) in capfd.readouterr().err) is is_printed
