"""A container of the harness writes its log at the pace at which it was recorded."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from e2e.nodes.behaviours import LOG_KEY, PACE_KEY
from e2e.nodes.container_logs import container_log
from tonnage.telemetry.startup_progress import read_progress

LOGS = Path(__file__).parents[3] / "e2e" / "logs"


def pod(age: float) -> dict[str, Any]:
    """A pod whose container runs for so many seconds and is not ready."""
    started = datetime.now(UTC) - timedelta(seconds=age)
    state = {"running": {"startedAt": started.isoformat()}}
    return {
        "metadata": {"name": "p", "annotations": {LOG_KEY: "loading", PACE_KEY: "recorded"}},
        "spec": {"containers": [{"name": "vllm"}]},
        "status": {"containerStatuses": [{"name": "vllm", "ready": False, "state": state}]},
    }


@pytest.mark.parametrize(
    ("age", "phase"),
    [(5, None), (40, "Loading"), (80, "Compiling"), (200, "Probing")],
)
def test_a_recorded_log_grows_with_the_age_of_its_container(age: float, phase: str | None) -> None:
    lines = container_log(pod(age), "vllm", LOGS)
    assert all(line.at <= datetime.now(UTC) for line in lines)
    log = "".join(f"{line.at.isoformat()} {line.text}\n" for line in lines)
    assert read_progress(log).phase == phase
