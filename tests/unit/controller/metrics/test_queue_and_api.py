"""The metrics: the names and labels that dashboards use, and the number of series."""

import re
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from tests.support.faults.fake_clock import FakeClock
from tests.support.fleets.gpu_nodes import H100, nvidia_node, snapshot_of
from tests.support.fleets.placing import declared
from tests.support.load.measured import CATALOG, Measured
from tests.support.load.metric_names import LABELS
from tests.support.specs.statuses import conditions, placement, status
from tonnage.controller.metrics.state import LastRunTimestamp
from tonnage.controller.workers import Result
from tonnage.fleet.fleet import Fleet
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.key import Key

AT_MOST_SERIES: Final = 1800
"""With 5,000 objects in 200 pools."""


def test_every_metric_of_the_contract_is_there_with_its_labels() -> None:
    measured = Measured()
    measured.everything_happens()
    labels = {name: {label for label, _ in pairs} for name, pairs in measured.series()}
    assert {name: labels.get(name) for name in LABELS} == {
        name: set(expected) for name, expected in LABELS.items()
    }


def test_a_standby_exports_no_pools_and_statuses() -> None:
    measured = Measured()
    leaders = {
        name
        for name in LABELS
        if re.match("tonnage_(?!build|api|watch|fleet|last|event_loop|known)", name)
    }
    assert not leaders & measured.names()
    assert not [name for name in measured.names() if "last" in name and "timestamp" in name]
    measured.everything_happens()
    assert leaders <= measured.names()


def test_gpus_of_a_pool_are_total_allocatable_free_and_reserved() -> None:
    measured = Measured()
    measured.book.complete()
    amd, nvidia = (
        {"pool": pool.name, "accelerator": pool.accelerator.id}
        for pool in sorted(measured.fleet.pools(), key=lambda pool: pool.resource)
        if pool.accelerator is not None
    )
    figures = ("nodes", "gpus", "allocatable_gpus", "free_gpus", "reserved_gpus")
    block = "largest_free_block_gpus"
    assert [measured.value(f"tonnage_pool_{name}", **amd) for name in (*figures, block)] == [
        *(2, 16, 16, 12, 0),
        8,
    ]
    assert [measured.value(f"tonnage_pool_{name}", **nvidia) for name in (*figures, block)] == [
        *(1, 8, 8, 6, 2),
        6,
    ]


def test_metrics_of_workers_are_read_at_the_scrape() -> None:
    measured, running = Measured(), [1.0, 4.0]
    measured.metrics.workers.watch(8, lambda: running, lambda: False)
    queue = {"name": "inferencedeployment", "controller": "inferencedeployment"}
    assert measured.value("workqueue_unfinished_work_seconds", **queue) == 5.0
    assert measured.value("workqueue_longest_running_processor_seconds", **queue) == 4.0
    of_workers = {"controller": "inferencedeployment"}
    assert measured.value("controller_runtime_active_workers", **of_workers) == 2.0
    assert measured.value("controller_runtime_max_concurrent_reconciles", **of_workers) == 8.0
    running.clear()
    assert measured.value("workqueue_longest_running_processor_seconds", **queue) == 0.0


def test_errors_are_counted_by_kind() -> None:
    measured, controller = Measured(), {"controller": "inferencedeployment"}
    errors = "controller_runtime_reconcile_errors_total"
    assert measured.value(errors, **controller) == 0.0, "a counter starts at 0"
    for result in Result:
        measured.metrics.reconciles.reconciled(result, 0.1)
    measured.metrics.reconciles.observe_terminal_error()
    assert measured.value(errors, **controller) == 1.0
    assert measured.value("controller_runtime_terminal_reconcile_errors_total", **controller) == 1.0
    assert measured.value("controller_runtime_reconcile_total", **controller, result="error") == 1.0


def test_a_timestamp_is_exported_after_the_first_run() -> None:
    clock, registry = FakeClock(), CollectorRegistry()
    last_run = LastRunTimestamp("tonnage_x_timestamp_seconds", "When.", clock.monotonic)
    registry.register(last_run)
    assert registry.get_sample_value("tonnage_x_timestamp_seconds") is None
    last_run.done()
    clock.advance(5)
    assert registry.get_sample_value("tonnage_x_timestamp_seconds") == clock.monotonic() - 5


def test_help_of_a_time_or_a_duration_says_its_unit() -> None:
    families = {
        family.name: family.documentation
        for family in text_string_to_metric_families(Measured().text())
        if family.name.startswith("tonnage_")
    }
    assert all(documentation.endswith(".") for documentation in families.values())
    for name, documentation in families.items():
        if name.endswith("timestamp_seconds"):
            assert "Unix time" in documentation, name
        elif name.endswith("seconds"):
            assert "second" in documentation, name


def test_five_thousand_objects_in_two_hundred_pools_are_few_series() -> None:
    accelerators, reasons = sorted(CATALOG.accelerators), list(RejectedReason)
    nodes = [nvidia_node(f"n-{number}", {**H100, "pool": f"p-{number}"}) for number in range(200)]
    pools = [declared(f"p-{number}", {"pool": f"p-{number}"}) for number in range(200)]
    measured = Measured(Fleet.of(snapshot_of(nodes, declared_pools=tuple(pools)), CATALOG))
    measured.everything_happens()
    before = len(measured.series())
    variants = [
        status(
            conditions=conditions(Placed="False/InsufficientGPUs", Ready=f"False/{reason}"),
            placements=[
                placement(
                    accelerators[number % len(accelerators)], measuredKvCacheTokens=900 + number
                )
            ],
            omittedCandidates=dict.fromkeys(map(str, reasons), 1),
        )
        for number, reason in enumerate(["OutOfMemory", "CrashLooping", "NotPlaced"] * 20)
    ]
    for number in range(5000):
        measured.book.record(
            Key(f"team-{number % 40}", f"m-{number}"), variants[number % len(variants)]
        )
    after = len(measured.series())
    print(f"{after} series, {before} of them before there were objects")  # noqa: T201 - a figure
    assert after <= AT_MOST_SERIES
