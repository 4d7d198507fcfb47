"""Tests that install gigabytes: they are run only where they are asked for."""

from pathlib import Path

import pytest


def ignore_unless_asked(folder: Path, path: Path, config: pytest.Config) -> bool | None:
    """Whether `path` is the folder, and no argument of pytest is in it: None leaves the choice to
    others."""
    asked = any(folder in (each, *each.parents) for each in map(_path, config.args))
    return True if path == folder and not asked else None


def _path(argument: str) -> Path:
    """The file or folder of an argument of pytest, which may name a test in it."""
    return Path(argument.partition("::")[0]).resolve()
