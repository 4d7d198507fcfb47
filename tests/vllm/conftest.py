"""The tests in `server` install 6 GB and take minutes: they are run where they are asked for."""

from pathlib import Path

import pytest

SERVER = Path(__file__).parent / "server"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    asked = any(SERVER in (path, *path.parents) for path in map(_path, config.args))
    return True if collection_path == SERVER and not asked else None


def _path(argument: str) -> Path:
    """The file or folder of an argument of pytest, which may name a test in it."""
    return Path(argument.partition("::")[0]).resolve()
