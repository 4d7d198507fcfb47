"""Golden files: what was expected once, kept in Git so that every change shows as a diff."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

Check = Callable[[Path, list[dict[str, Any]]], None]


@pytest.fixture
def check_golden() -> Check:
    """Compare documents with a golden file; TONNAGE_GOLDEN=write writes the file instead."""
    return _write if os.environ.get("TONNAGE_GOLDEN") == "write" else _compare


def _write(path: Path, documents: list[dict[str, Any]]) -> None:
    path.write_text(_dump(documents), encoding="utf-8")


def _compare(path: Path, documents: list[dict[str, Any]]) -> None:
    want = path.read_text(encoding="utf-8")
    assert _dump(documents) == want, f"{path.name} differs: `make golden`, then read the diff"


def _dump(documents: list[dict[str, Any]]) -> str:
    return yaml.safe_dump_all(documents, sort_keys=False, width=100, explicit_start=True)
