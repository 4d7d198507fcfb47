"""A replica that takes its time: the status names the phase, `kubectl tonnage explain` shows a bar,
and the time in each phase is measured once."""

from __future__ import annotations

import re

from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.user import Predicate, User, condition, has
from e2e.models import inference
from e2e.nodes.behaviours import LOG_KEY, PACE_KEY
from tests.support.load.exposition import read_series

ONE_POOL: Json = {
    "groups": [{"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8}]
}
SLOW: Json = {
    "metadata": {
        "annotations": {
            LOG_KEY: "loading",
            PACE_KEY: "recorded",
            "e2e.tonnage.dev/ready-after": "130s",
        }
    }
}
BAR = re.compile(r"Loading +\d+s +█+░+ (\d+) %, ([1-9]\d*) of 12 files, about \d+s left")


def starts(operator: OperatorProcess, phase: str) -> float:
    """How often the phase of a start from a Hub was measured, in the one pool of the fleet."""
    series = read_series(operator.metrics())
    labels = {"phase": phase, "pool": "amd-mi300x", "medium": "Hub"}
    return series.get(("tonnage_startup_seconds_count", frozenset(labels.items())), 0.0)


def is_in(phase: str) -> Predicate:
    """A predicate: the one replica is in this phase of its start."""
    return lambda status: status.get("starting") == [{"phase": phase, "replicas": 1}]


def test_the_phases_of_a_start_are_reported_and_measured_once(
    fleet: UseFleet, user: User, plugin: Plugin, operator: OperatorProcess
) -> None:
    fleet(ONE_POOL)
    before = starts(operator, "Loading")
    user.apply(inference("llama", template=SLOW))

    status = user.wait("llama", is_in("Loading"))
    message = condition(status, "Ready")["message"]
    assert message == "0 of 1 replicas are ready; 1 loads weights"
    assert condition(status, "Progressing")["status"] == "True"
    bar = user.admin.until(
        "a bar with files",
        lambda: BAR.search(plugin.run("explain", "llama")),
        describe=lambda: plugin.run("explain", "llama"),
    )
    assert 1 <= int(bar[2]) < 12

    mark = user.admin.audit_mark()
    status = user.wait("llama", is_in("Compiling"), timeout=180)
    assert condition(status, "Ready")["message"] == "0 of 1 replicas are ready; 1 warms up"
    assert len(user.operator_writes(mark)) == 1, "the status, for all files that were loaded"

    status = user.wait("llama", has("Ready"), timeout=180)
    assert "starting" not in status
    user.admin.until(
        "the start to be measured", lambda: starts(operator, "Loading") > before, timeout=90
    )
    operator.stop()
    operator.start()
    user.await_quiet()
    assert starts(operator, "Loading") == 0, "a new process counts no start that has ended"
