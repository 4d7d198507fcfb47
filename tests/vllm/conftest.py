"""The tests in `server` install 6 GB and take minutes: they are run where they are asked for."""

from pathlib import Path

import pytest

from tests.support.engines.asked_tests import ignore_unless_asked

SERVER = Path(__file__).parent / "server"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return ignore_unless_asked(SERVER, collection_path, config)
