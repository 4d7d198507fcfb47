"""Fixtures: an operator that scales by load, and the Prometheus that it queries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.harness.operator_process import OperatorProcess
from e2e.harness.stack import Stack
from e2e.programs.prometheus import Prometheus


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Its address is known from the beginning; each test starts it for its own pods."""
    server = Prometheus(tmp_path_factory.mktemp("prometheus"))
    yield server
    server.close()


@contextmanager
def following(
    stack: Stack, folder: Path, prometheus: Prometheus, interval_seconds: float
) -> Iterator[OperatorProcess]:
    """An operator that looks at the load every so many seconds."""
    environment = {
        "TONNAGE_PROMETHEUS_URL": prometheus.url,
        "TONNAGE_SCALING_INTERVAL_SECONDS": str(interval_seconds),
    }
    process = OperatorProcess(stack, folder, environment=environment)
    process.start()
    yield process
    process.close()
