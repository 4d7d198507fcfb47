"""The metrics of a running operator are valid and complete, and match the cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping

from e2e.harness.admin import SLOW
from e2e.harness.binaries import program_path
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.load.exposition import read_series
from tests.support.load.metric_names import LABELS

ONLY_AFTER = {
    "tonnage_kv_cache_tokens": "a Prometheus has reported what vLLM measured",
    "tonnage_kv_cache_prediction_worst_ratio": "a Prometheus has reported what vLLM measured",
    "tonnage_watch_missed_changes_total": "events had half a minute to come",
    "tonnage_rejected_candidates": "a pool was rejected",
    "tonnage_prometheus_questions_total": "a Prometheus was asked",
    "tonnage_wanted_replicas": "an object follows its load",
    "tonnage_startup_seconds_count": "a start took half a minute",
}
"""What an operator of a minute's age need not have, and what it waits for."""


TWO_POOLS = {
    "groups": [
        {"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 8},
        {"name": "h100", "count": 2, "accelerator": "h100-sxm-80gb", "gpusPerNode": 4},
    ]
}


Series = tuple[str, Mapping[str, str]]
"""The name and the labels of one."""


def value(operator: OperatorProcess, name: str, /, **labels: str) -> float | None:
    return read_series(operator.metrics()).get((name, frozenset(labels.items())))


def test_metrics_are_complete_and_valid_while_objects_run_and_wait(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet(TWO_POOLS)
    user.apply(inference("runs"))
    user.apply(inference("waits", placement={"accelerators": ["l40s"]}))
    user.wait_ready("runs", timeout=SLOW)
    user.wait("waits", has("Placed", "False"), timeout=SLOW)
    text = user.admin.until(
        "all metrics, after the resync",
        lambda: text if not missing(text := operator.metrics()) else None,
        timeout=SLOW,
        describe=lambda: str(missing(operator.metrics())),
    )
    promtool = program_path("promtool")
    result = subprocess.run(
        [str(promtool), "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    labels = {name: {label for label, _ in samples} for name, samples in read_series(text)}
    assert {name: names for name, names in labels.items() if name in LABELS} == {
        name: set(LABELS[name]) for name in labels if name in LABELS
    }


def missing(text: str) -> set[str]:
    """Metrics that this answer should have and has not; the time of a resync is 0 before it."""
    series = read_series(text)
    resync = "tonnage_last_resync_timestamp_seconds"
    present = {name for (name, _), value in series.items() if name != resync or value}
    return set(LABELS) - present - set(ONLY_AFTER)


def test_metrics_of_deleted_objects_are_removed(
    fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet(TWO_POOLS)
    user.apply(inference("runs", replicas=2))
    user.apply(inference("waits", placement={"accelerators": ["l40s"]}))
    status = user.wait_ready("runs", timeout=SLOW)
    (placement,) = status["placements"]
    where = {"accelerator": placement["accelerator"]}
    pool = {"pool": placement["pool"], **where}
    placed = condition(user.wait("waits", has("Placed", "False"), timeout=SLOW), "Placed")
    unplaced: Series = ("tonnage_inferencedeployments", {"condition": "Placed", "status": "False"})
    await_values(
        user,
        operator,
        [
            (unplaced, 1.0),
            (("tonnage_placed_objects", where), 1.0),
            (("tonnage_ready_replicas", where), 2.0),
            (("tonnage_pool_gpus", pool), 8.0),
            (("tonnage_pool_free_gpus", pool), 8.0 - 2.0 * placement["gpusPerReplica"]),
            (("tonnage_pool_reserved_gpus", pool), 0.0),
        ],
    )
    since = "tonnage_unplaced_since_timestamp_seconds"
    named = {"namespace": user.namespace, "name": "waits", "reason": placed["reason"]}
    assert value(operator, since, **named)
    for name in ("runs", "waits"):
        user.admin.delete("infd", name)
        user.forget(name)
    user.admin.until(
        "both objects to be forgotten",
        lambda: (
            not any(
                value(operator, name, **labels)
                for name, labels in (unplaced, ("tonnage_placed_objects", where), (since, named))
            )
        ),
        timeout=SLOW,
    )


def await_values(user: User, operator: OperatorProcess, want: list[tuple[Series, float]]) -> None:
    """Wait until one answer has all of these values."""

    def wrong() -> list[str]:
        present = read_series(operator.metrics())
        return [
            f"{name}{labels} is {got}, expected {expected}"
            for (name, labels), expected in want
            if (got := present.get((name, frozenset(labels.items())))) != expected
        ]

    user.admin.until(
        "the metrics to match the cluster",
        lambda: not wrong(),
        timeout=SLOW,
        describe=lambda: "\n".join(wrong()),
    )


def test_a_new_leader_exports_all_objects_before_it_has_reconciled_any(
    control_plane: Stack, fleet: UseFleet, user: User, operator: OperatorProcess
) -> None:
    fleet(TWO_POOLS)
    user.apply(inference("runs"))
    user.wait_ready("runs", timeout=SLOW)
    operator.stop()
    operator.start()
    user.admin.until("it to lead", lambda: operator.leads, timeout=SLOW)
    user.admin.until(
        "the object to be counted",
        lambda: value(operator, "tonnage_inferencedeployments", condition="Ready", status="True"),
        timeout=SLOW,
    )
