"""The adapters of one vLLM, at an address of loopback that stands for its pod.

Answers as vLLM 0.32.0 does (vllm/entrypoints/openai/models/serving.py).
"""

from __future__ import annotations

import json
import os
from threading import Lock

from e2e.doubles.page_server import Page, PageServer
from tonnage.engines.defaults import load_defaults


class VllmAdapters(PageServer):
    """Serves `model`; it finds no files at the paths in `missing`. `number` gives it an address of
    its own."""

    def __init__(self, number: int, model: str, missing: frozenset[str] = frozenset()) -> None:
        self.host = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250}.{number}"
        super().__init__(self.host, load_defaults().server.port)
        self._model, self._missing = model, missing
        self._lock = Lock()
        self._loaded: dict[str, str] = {}

    @property
    def loaded(self) -> dict[str, str]:
        """What each adapter was loaded from."""
        with self._lock:
            return dict(self._loaded)

    def restart(self) -> None:
        """The server begins anew, without adapters."""
        with self._lock:
            self._loaded.clear()

    def answer(self, path: str) -> Page:
        """The list of models."""
        if path != "/v1/models":
            return Page(b"", status=404)
        base = {"id": self._model, "object": "model", "root": self._model, "parent": None}
        adapters = [
            {"id": name, "object": "model", "root": root, "parent": self._model}
            for name, root in self.loaded.items()
        ]
        body = {"object": "list", "data": [base, *adapters]}
        return Page(json.dumps(body).encode(), "application/json")

    def receive(self, path: str, body: bytes) -> Page:
        """Load or unload an adapter."""
        request = json.loads(body)
        name, source = request["lora_name"], request.get("lora_path")
        with self._lock:
            if path == "/v1/unload_lora_adapter":
                known = self._loaded.pop(name, None) is not None
                return Page(b"", status=200 if known else 404)
            if path != "/v1/load_lora_adapter" or source in self._missing:
                return Page(b"", status=404)
            if name in self._loaded:
                return Page(b"", status=400)
            self._loaded[name] = source
            return Page(b"")
