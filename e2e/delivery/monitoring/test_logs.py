"""The log of a running operator: one line for each reconcile, as JSON or for a console."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference
from tests.support.load.exposition import read_series

READABLE = re.compile(
    r"\d\d:\d\d:\d\d INFO     reconciled key=(?P<key>\S+) result=\w+ seconds=[\d.e-]+"
    r"(?: writes=\[[^]]*\])?(?: requeue_seconds=[\d.e-]+)?(?: error=.*)?"
)


@pytest.fixture(params=["json", "console"])
def operator(
    request: pytest.FixtureRequest, control_plane: Stack, installed: Admin, tmp_path: Path
) -> Iterator[OperatorProcess]:
    environment = {"TONNAGE_LOG_FORMAT": request.param}
    process = OperatorProcess(control_plane, tmp_path, environment=environment)
    process.start()
    yield process
    process.close()


def reconciled_keys(log: str) -> list[str]:
    """The object of each reconcile that the log tells, in either format. The last line may be half
    written yet."""
    keys = []
    complete, _, _ = log.rpartition("\n")
    for line in complete.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            keys += [entry["key"]] if entry["message"] == "reconciled" else []
        elif match := READABLE.fullmatch(line):
            keys.append(match["key"])
    return keys


def reconciles(operator: OperatorProcess) -> float:
    """How many there were, as the metrics count them."""
    return sum(
        value
        for (name, _), value in read_series(operator.metrics()).items()
        if name == "controller_runtime_reconcile_total"
    )


def test_each_reconcile_is_one_line(fleet: UseFleet, user: User, operator: OperatorProcess) -> None:
    fleet("tiny")
    user.apply(inference("first", "llama-3.1-8b"))
    user.apply(inference("second", "llama-3.1-8b"))
    for name in ("first", "second"):
        user.wait_ready(name, timeout=240)
    user.admin.until(
        "as many lines as reconciles",
        lambda: len(reconciled_keys(operator.log.read_text("utf-8"))) == reconciles(operator),
        timeout=240,
    )
    log = operator.log.read_text("utf-8")
    assert set(reconciled_keys(log)) == {f"{user.namespace}/first", f"{user.namespace}/second"}
    assert "\x1b[" not in log, "a file is no terminal"
