"""A Hub on loopback, and huggingface_hub without anything of the machine the tests run on."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import close_session

from tests.support.foreign.hub_server import HubServer
from tonnage.checkpoint.hub.reader import HubSettings


@pytest.fixture(autouse=True)
def no_account_of_this_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """No token, cache or offline switch of the person who runs the tests."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
    monkeypatch.setenv("HF_TOKEN", "hf_TokenOfThisMachine")
    yield
    close_session()


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture
def settings(hub: HubServer, tmp_path: Path) -> HubSettings:
    """Its timeouts are for tests of something else, on a machine with far too much to do."""
    return HubSettings(hub.endpoint, tmp_path / "cache", 60.0, 120.0)
