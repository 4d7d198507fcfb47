"""What a real vLLM 0.32.0 answered on /metrics, served again on a loopback port.

Recorded before and after 22 requests to a random Llama of 2.9 million parameters on a CPU. Pods of
the harness have no address that answers, so a Prometheus is led here instead.
"""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from types import TracebackType

_RECORDED = Path(__file__).parent.parent / "tests" / "data" / "vllm-metrics"
_CONTENT_TYPE = "text/plain; version=1.0.0"  # as vLLM sends it, whoever asks


class VllmMetrics:
    """One server in the place of all vLLM pods: idle at first, then as after some requests."""

    def __init__(self) -> None:
        self._text = (_RECORDED / "idle.txt").read_bytes()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    def answer_requests(self) -> None:
        """From here on it has answered requests: counters have grown."""
        self._text = (_RECORDED / "after-requests.txt").read_bytes()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        metrics = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("Content-Type", _CONTENT_TYPE)
                self.end_headers()
                self.wfile.write(metrics._text)

            def log_message(self, *_: object) -> None:
                """Be silent: the scrapes of each second are no news."""

        return Handler

    def __enter__(self) -> VllmMetrics:
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
