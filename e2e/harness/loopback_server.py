"""An HTTP server of this process that only this machine reaches."""

from __future__ import annotations

import ipaddress
import ssl
import sys
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Any, Self

_POLL_SECONDS = 0.02  # the longest that its end takes


@dataclass(frozen=True, slots=True)
class Certificate:
    """The files of a certificate and its key."""

    chain: Path
    key: Path


class LoopbackServer:
    """Listens from when it is made, and answers while it is entered, or from `start` to `stop`.

    Port 0 is any free one; with a certificate it speaks TLS. A request has a thread of its own.
    """

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        host: str = "127.0.0.1",
        port: int = 0,
        certificate: Certificate | None = None,
    ) -> None:
        if not ipaddress.ip_address(host).is_loopback:
            raise ValueError(f"{host} is no address of loopback, such as 127.0.0.1")
        self._server = _Listener((host, port), handler)
        self._scheme = "http"
        if certificate is not None:
            self._scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate.chain, certificate.key)
            # The handshake belongs to the thread of the request: a silent client must not stop
            # others.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = Thread(
            target=self._server.serve_forever, args=(_POLL_SECONDS,), name="loopback", daemon=True
        )

    @property
    def address(self) -> str:
        """Host and port."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    @property
    def url(self) -> str:
        """Where its paths begin."""
        return f"{self._scheme}://{self.address}"

    def start(self) -> None:
        """Answer from now on, in the background."""
        self._thread.start()

    def stop(self) -> None:
        """Stop listening; further connections are refused. Does nothing the second time."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64  # a full queue costs a client of many connections a second

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print no traceback of clients that give up, as a busy Prometheus does by the thousand."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)
