"""The metrics page of SGLang, as far as the operator reads it without a load."""

from __future__ import annotations

import os

from e2e.doubles.page_server import Page, PageServer
from tonnage.engines.defaults import load_defaults


class SglangMetrics(PageServer):
    """The metrics of a server with this pool (SGLang 0.5.23 observability/metrics_collector.py), at
    an address of loopback that is of this process alone."""

    def __init__(self, tokens: int) -> None:
        self.host = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.9"
        super().__init__(self.host, load_defaults().server.port)
        name = "sglang:max_total_num_tokens"
        labels = 'engine_type="unified",model_name="llama",tp_rank="0"'
        self._page = f"# TYPE {name} gauge\n{name}{{{labels}}} {tokens}.0\n".encode()

    def answer(self, path: str) -> Page:
        """The page, at its path alone."""
        return Page(self._page, status=200 if path == "/metrics" else 404)
