"""A cluster in memory in the place of the one that a kubeconfig leads to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import ModuleType
from typing import Any

import pytest

from tests.support.api_server.fake_api import FakeApi


def connect_to(monkeypatch: pytest.MonkeyPatch, api: FakeApi, *modules: ModuleType) -> None:
    """Let these subcommands read the fake; nothing may be written to it."""

    @asynccontextmanager
    async def opened(_: Any) -> AsyncIterator[FakeApi]:
        before = api.write_count
        yield api
        assert api.write_count == before, "the command line writes nothing"

    for module in modules:
        monkeypatch.setattr(module, "open_cluster", opened)
        if hasattr(module, "namespace_of"):
            monkeypatch.setattr(module, "namespace_of", lambda options: options.namespace or "chat")
