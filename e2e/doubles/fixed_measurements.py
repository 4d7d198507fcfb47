"""A Prometheus that knows one thing: each vLLM pod has so many tokens of KV cache."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import parse_qs, urlsplit

from e2e.doubles.page_server import Page, PageServer
from e2e.harness.rest import Json

_SELECTED = re.compile(r'pod=~"([^"]*)"')


class FixedMeasurements(PageServer):
    """The server; it answers instant queries alone."""

    def __init__(self, tokens: int) -> None:
        super().__init__()
        self._tokens = tokens

    def answer(self, path: str) -> Page:
        """The result of a query."""
        (query,) = parse_qs(urlsplit(path).query).get("query", [""])
        return Page(json.dumps(self._measured(query)).encode(), "application/json")

    def _measured(self, query: str) -> Json:
        """A series for each pod that the question names, where it is about the cache."""
        match = _SELECTED.search(query) if "vllm:cache_config_info" in query else None
        pods = match[1].split("|") if match else []
        now = time.time()
        result = [
            {
                "metric": {"pod": pod, "engine": "0", "kv_cache_size_tokens": str(self._tokens)},
                "value": [now, str(now - 1)],
            }
            for pod in pods
        ]
        return {"status": "success", "data": {"resultType": "vector", "result": result}}
