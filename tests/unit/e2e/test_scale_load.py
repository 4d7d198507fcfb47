"""How the benchmarks generate load, and what they read of the operator's metrics."""

import asyncio

import pytest

from benchmarks.cluster.load_generator import PARALLEL_REQUESTS, run_at_rate, run_parallel
from benchmarks.cluster.operator_metrics import OperatorCounters, parse_counters
from e2e.harness.failure import HarnessError

METRICS = """\
# TYPE controller_runtime_reconcile counter
controller_runtime_reconcile_total{controller="x",result="success"} 7.0
controller_runtime_reconcile_total{controller="x",result="error"} 2.0
# TYPE controller_runtime_reconcile_time_seconds histogram
controller_runtime_reconcile_time_seconds_bucket{controller="x",le="+Inf"} 9.0
controller_runtime_reconcile_time_seconds_count{controller="x"} 9.0
controller_runtime_reconcile_time_seconds_sum{controller="x"} 0.018
"""
RESYNC = """\
# TYPE tonnage_last_resync_timestamp_seconds gauge
tonnage_last_resync_timestamp_seconds 1700000000.0
"""


def test_counters_of_all_results_are_added():
    assert parse_counters(METRICS) == OperatorCounters(9, 9, 0.018, None)
    assert parse_counters(METRICS + RESYNC).last_resync == 1_700_000_000.0
    with pytest.raises(HarnessError, match="no controller_runtime_reconcile_total"):
        parse_counters(RESYNC)


def test_counters_since_an_earlier_reading_show_a_resync_only_where_one_came():
    earlier, later = OperatorCounters(5, 5, 0.01, None), OperatorCounters(9, 9, 0.018, 17.0)
    added = later.since(earlier)
    assert (added.reconciles, added.last_resync) == (4, 17.0)
    assert added.seconds_per_reconcile == pytest.approx(0.002)
    nothing = later.since(later)
    assert (nothing.reconciles, nothing.last_resync) == (0, None)
    assert nothing.seconds_per_reconcile is None


async def test_calls_start_at_the_rate_and_not_one_after_the_other():
    under_way = asyncio.Barrier(5)

    async def call():
        await under_way.wait()  # until all of them have started

    async with asyncio.timeout(60):
        await run_at_rate([call] * 5, 100.0)


async def test_only_so_many_calls_are_under_way_and_the_first_error_is_raised_alone():
    now, most = 0, 0

    async def call():
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0)
        now -= 1

    async def fail():
        raise HarnessError("refused")

    await run_parallel([call] * 50)
    assert most == PARALLEL_REQUESTS
    with pytest.raises(HarnessError, match="refused"):
        await run_parallel([fail] * 3)
