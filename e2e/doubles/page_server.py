"""An HTTP server on loopback that generates each page on request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from typing import Self


@dataclass(frozen=True, slots=True)
class Page:
    """What is answered."""

    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    status: int = 200


class PageServer(ABC):
    """Listens from when it is made, and answers while it is entered; port 0 is any free one."""

    def __init__(self, host: str = "127.0.0.1", port: int = 0) -> None:
        self._server = ThreadingHTTPServer((host, port), _handler(self))
        self._server.daemon_threads = True
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @abstractmethod
    def answer(self, path: str) -> Page:
        """The page at a path, its query included; asked from several threads at once."""

    @property
    def address(self) -> str:
        """Host and port."""
        host, port = self._server.server_address[:2]
        return f"{host!s}:{port}"

    @property
    def url(self) -> str:
        """Where its paths begin."""
        return f"http://{self.address}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(server: PageServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = server.answer(self.path)
            self.send_response(page.status)
            self.send_header("Content-Type", page.content_type)
            self.send_header("Content-Length", str(len(page.body)))
            self.end_headers()
            self.wfile.write(page.body)

        def log_message(self, *_: object) -> None:
            """Be silent: a question each second is no news."""

    return Handler
