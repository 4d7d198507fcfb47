"""The tests in `oracle` install 6 GB: they are run where they are asked for."""

from pathlib import Path

import pytest

from tests.support.engines.asked_tests import ignore_unless_asked

ORACLE = Path(__file__).parent / "oracle"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return ignore_unless_asked(ORACLE, collection_path, config)
