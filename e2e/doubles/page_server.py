"""An HTTP server on loopback that generates each page on request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler

from e2e.harness.loopback_server import LoopbackServer


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class PageServer(LoopbackServer, ABC):
    """Listens from when it is made, and answers while it is entered; port 0 is any free one."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        super().__init__(_handler(self), host, port)

    @abstractmethod
    def answer(self, path: str) -> Page:
        """The page at a path, its query included; asked from several threads at once."""

    def receive(self, path: str, body: bytes) -> Page:
        """The page in answer to what is posted to a path."""
        return Page(b"", status=405)


def _handler(server: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._send(server.answer(self.path))

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length", 0))
            self._send(server.receive(self.path, self.rfile.read(size)))

        def _send(self, page: Page) -> None:
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, *_: object) -> None:
            """Be silent: a question each second is no news."""

    return Handler
