"""A Prometheus that knows one thing: each vLLM pod has so many tokens of KV cache."""

from __future__ import annotations

import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from types import TracebackType
from urllib.parse import parse_qs, urlsplit

from e2e.rest import Json

_SELECTED = re.compile(r'pod=~"([^"]*)"')


class ToldMeasurements:
    """The server, on a loopback port while it is entered; it answers instant queries alone."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where its API begins."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def _answer(self, query: str) -> Json:
        """A series for each pod that the question names, where it is about the cache."""
        found = _SELECTED.search(query) if "vllm:cache_config_info" in query else None
        pods = found[1].split("|") if found else []
        now = time.time()
        result = [
            {
                "metric": {"pod": pod, "engine": "0", "kv_cache_size_tokens": str(self._tokens)},
                "value": [now, str(now - 1)],
            }
            for pod in pods
        ]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        told = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                (query,) = parse_qs(urlsplit(self.path).query).get("query", [""])
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                self.wfile.write(json.dumps(told._answer(query)).encode())

            def log_message(self, *_: object) -> None:
                """Be silent."""

        return Handler

    def __enter__(self) -> ToldMeasurements:
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
