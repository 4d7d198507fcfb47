"""From the rounds of `make bench-cluster` to figures with bars, and to tables. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

from benchmarks.cluster.baselines import CONTROLLERS, LWS, TONNAGE
from benchmarks.cluster.latency_probe import Stage
from benchmarks.cluster.resource_cost import RequestCost, most_frequent
from benchmarks.cluster.rounds import ClusterResults, CreateRound, IdleRound, LoadPlan, TouchRound
from benchmarks.cluster.usage import CpuUse
from benchmarks.pages.figures import Bar, Figure, ResultTable, percentile

_SELDOM: Final = 0.1
"""Requests an object that are fewer than this do not belong to objects: lists now and then."""

_SMALL_CORES: Final = 0.005

# (objects a second, stage, share) -> the bar, in milliseconds where it is absolute.
_STEADY_BARS: Final[Mapping[tuple[float, Stage, float], Bar]] = {
    (5, Stage.CHILD, 0.5): Bar(1, LWS.name),
    (5, Stage.STATUS, 0.5): Bar(150),
    (5, Stage.STATUS, 0.99): Bar(600),
    (10, Stage.STATUS, 0.5): Bar(400),
    (10, Stage.STATUS, 0.99): Bar(2000),
    (20, Stage.CHILD, 0.5): Bar(0.5, LWS.name),
    (20, Stage.CHILD, 0.99): Bar(0.3, LWS.name),
    (20, Stage.STATUS, 0.5): Bar(2000),
    (20, Stage.STATUS, 0.99): Bar(5000),
}
_BURST_BARS: Final = {Stage.CHILD: Bar(0.6, LWS.name), Stage.STATUS: Bar(1.5, LWS.name)}
_BURST_NAMES: Final = {
    Stage.CHILD: "all children",
    Stage.SERVICE: "all Services",
    Stage.STATUS: "all statuses",
}
_CHANGE_BARS: Final = {0.5: Bar(100), 0.99: Bar(500)}
_RECONCILE_BAR: Final = Bar(3)
_CPU_BAR: Final = Bar(15)
_PLANS_BAR: Final = Bar(2)


def cluster_figures(results: ClusterResults, plan: LoadPlan) -> list[Figure]:
    """All figures, in the order of the bars."""
    steady = chain.from_iterable(
        _steady_figures(results, number, rate) for number, (rate, _) in enumerate(plan.steady)
    )
    return [
        *steady,
        *_burst_figures(results, plan),
        *_change_figures(results, plan),
        *_unchanged_figures(results),
        *_cost_figures(results),
    ]


def _by_controller(value_of: Callable[[str], float | None]) -> dict[str, float | None]:
    return {controller.name: value_of(controller.name) for controller in CONTROLLERS}


def _steady_figures(results: ClusterResults, number: int, rate: float) -> Iterator[Figure]:
    for stage in Stage:
        for share in (0.5, 0.99):

            def value_of(name: str, stage: Stage = stage, share: float = share) -> float | None:
                rounds = results.steady.get(name)
                delays = rounds[number].delays.get(stage) if rounds else None
                return percentile(delays, share) * 1e3 if delays else None

            title = f"{rate:g} objects a second: {stage} p{share * 100:g}"
            bar = _STEADY_BARS.get((rate, stage, share))
            yield Figure(title, "ms", _by_controller(value_of), bar)


def _burst_figures(results: ClusterResults, plan: LoadPlan) -> Iterator[Figure]:
    for stage, what in _BURST_NAMES.items():

        def value_of(name: str, stage: Stage = stage) -> float | None:
            burst = results.bursts.get(name)
            return burst.stage_seconds.get(stage) if burst else None

        title = f"burst of {plan.burst:,}: {what}"
        yield Figure(title, "s", _by_controller(value_of), _BURST_BARS.get(stage))


def _change_figures(results: ClusterResults, plan: LoadPlan) -> Iterator[Figure]:
    for share, bar in _CHANGE_BARS.items():

        def value_of(name: str, share: float = share) -> float | None:
            change = results.changes.get(name)
            return percentile(change.delays, share) * 1e3 if change else None

        title = (
            f"{plan.changes_per_second:g} spec changes a second:"
            f" the child carries it, p{share * 100:g}"
        )
        yield Figure(title, "ms", _by_controller(value_of), bar)


def _unchanged_figures(results: ClusterResults) -> Iterator[Figure]:
    touched, idle = results.touched, results.idle
    requests = duration = cpu = None
    if touched is not None and idle is not None and touched.work.counters.reconciles:
        counters = touched.work.counters
        requests = requests_per_reconcile(touched)
        seconds = counters.seconds_per_reconcile
        duration = None if seconds is None else seconds * 1e3
        cpu = _cpu_above_idle(touched.use, idle) / counters.reconciles * 1e3
    name = "reconcile of an unchanged object"
    yield Figure(f"{name}: requests", "", {TONNAGE.name: requests}, Bar(0))
    yield Figure(f"{name}: duration", "ms", {TONNAGE.name: duration}, _RECONCILE_BAR)
    yield Figure(f"{name}: CPU, with its event", "ms", {TONNAGE.name: cpu})


def requests_per_reconcile(touched: TouchRound) -> float:
    """The operator's requests for a reconcile of an unchanged object. A request about the whole
    cluster counts where it is not seldom: one now and then is a periodic read."""
    reconciles = touched.work.counters.reconciles
    frequent = [
        count for count in touched.cluster_requests.values() if count / reconciles >= _SELDOM
    ]
    return (sum(touched.requests.values()) + sum(frequent)) / reconciles


def _cpu_above_idle(use: CpuUse, idle: IdleRound) -> float:
    """CPU seconds of the operator less what it uses when nothing happens."""
    idle_share = idle.use.by_process[TONNAGE.process] / idle.use.seconds
    return max(0.0, use.by_process[TONNAGE.process] - idle_share * use.seconds)


def _cost_figures(results: ClusterResults) -> Iterator[Figure]:
    def cpu_of(name: str) -> float | None:
        rounds = results.steady.get(name)
        return max(map(_cpu_for(name), rounds)) * 1e3 if rounds else None

    def requests_for(name: str) -> float | None:
        cost = results.requests.get(name)
        return cost.by_controller / cost.objects if cost else None

    plans = [plans_per_object(one, results.idle) for one in results.steady.get(TONNAGE.name, ())]
    most_plans = max((value for value in plans if value is not None), default=None)
    title = "a new object until settled, the worst of the rates"
    yield Figure(f"{title}: CPU of the controller", "ms", _by_controller(cpu_of), _CPU_BAR)
    yield Figure(f"{title}: plans", "", {TONNAGE.name: most_plans}, _PLANS_BAR)
    yield Figure("a new object: requests of the controller", "", _by_controller(requests_for))


def _cpu_for(name: str) -> Callable[[CreateRound], float]:
    """CPU seconds of a controller's process for each object of a round, its idle use included."""
    (process,) = (one.process for one in CONTROLLERS if one.name == name)
    return lambda one: one.until_settled.by_process[process] / one.objects


def plans_per_object(one: CreateRound, idle: IdleRound | None) -> float | None:
    """Reconciles for each new object: all of the round, less those of an idle cluster in the same
    time, and less those of other objects where a resync fell into the round."""
    if one.operator is None or idle is None:
        return None
    counters = one.operator.counters
    idle_rate = idle.work.counters.reconciles / idle.use.seconds
    reconciles = counters.reconciles - idle_rate * one.until_settled.seconds
    if counters.last_resync is not None:
        reconciles -= one.operator.other_reconciles
    return max(0.0, reconciles) / one.objects


def cluster_tables(results: ClusterResults, plan: LoadPlan) -> list[ResultTable]:
    """Everything that was measured, for a reader who wants to know why."""
    tables = [
        *(_latency_table(results, number, rate) for number, (rate, _) in enumerate(plan.steady)),
        _change_table(results, plan),
        _burst_table(results, plan),
        _cost_table(results),
        *_cpu_tables(results),
        _requests_table(results.requests),
    ]
    if (unchanged := _unchanged_table(results)) is not None:
        tables.append(unchanged)
    return tables


_PERCENTILES: Final = ("p50 ms", "p90 ms", "p99 ms", "max ms")


def _milliseconds(delays: Sequence[float]) -> list[str]:
    return [f"{percentile(delays, share) * 1e3:.1f}" for share in (0.5, 0.9, 0.99, 1)]


def _latency_table(results: ClusterResults, number: int, rate: float) -> ResultTable:
    rows = []
    for name, rounds in results.steady.items():
        one = rounds[number]
        created = f"{one.objects / one.creating.seconds:.1f}"
        for stage, delays in one.delays.items():
            cells = (str(one.objects), created, *_milliseconds(delays), str(one.incomplete))
            rows.append((f"{name}: {stage}", *cells))
    present = max((rounds[number].present for rounds in results.steady.values()), default=0)
    columns = ("from its parent's creation", "n", "created/s", *_PERCENTILES, "incomplete")
    return ResultTable(f"{rate:g} objects a second, {present:,} present", columns, rows)


def _change_table(results: ClusterResults, plan: LoadPlan) -> ResultTable:
    rows = [
        (name, str(len(one.delays)), *_milliseconds(one.delays), str(one.incomplete))
        for name, one in results.changes.items()
    ]
    title = f"{plan.changes_per_second:g} spec changes a second: the child carries it"
    return ResultTable(title, ("controller", "n", *_PERCENTILES, "incomplete"), rows)


def _burst_table(results: ClusterResults, plan: LoadPlan) -> ResultTable:
    rows = []
    for name, one in results.bursts.items():
        ends = [one.stage_seconds.get(stage) for stage in Stage]
        cells = ["" if end is None else f"{end:.1f}" for end in ends]
        cpu = _cpu_for(name)(one) * one.objects
        rss = results.peak_rss_bytes.get(name, 0) / 2**20
        posted = f"{one.creating.seconds:.1f}"
        rows.append((name, posted, *cells, f"{cpu:.1f}", f"{rss:.0f}", str(one.incomplete)))
    columns = (
        *("controller", "all created s", "all children s", "all Services s", "all statuses s"),
        *("its CPU until settled s", "peak RSS MiB", "incomplete"),
    )
    return ResultTable(f"a burst of {plan.burst:,} objects", columns, rows)


def _cost_table(results: ClusterResults) -> ResultTable:
    """CPU and plans for a new object, at each rate."""
    rows = []
    for name, rounds in results.steady.items():
        for one in rounds:
            plans = plans_per_object(one, results.idle)
            others = one.operator.other_reconciles if one.operator else None
            resync = one.operator is not None and one.operator.counters.last_resync is not None
            rows.append(
                (
                    f"{name}, {one.rate:g}/s",
                    f"{_cpu_for(name)(one) * 1e3:.1f}",
                    "" if plans is None else f"{plans:.2f}",
                    "" if others is None else f"{others:,}",
                    "yes" if resync else "",
                )
            )
    columns = ("a new object until settled", "CPU ms", "plans", "plans of others", "resync")
    return ResultTable("what a new object costs its controller", columns, rows)


def _cpu_tables(results: ClusterResults) -> Iterator[ResultTable]:
    """Who uses the machine in each kind of round."""
    for number, rate in enumerate(_rates(results)):
        title = f"cores in use while {rate:g} objects a second are created"
        uses = {name: rounds[number].creating for name, rounds in results.steady.items()}
        yield _cores_table(title, uses)
        title = f"CPU seconds until {rate:g} objects a second have settled"
        uses = {name: rounds[number].until_settled for name, rounds in results.steady.items()}
        yield _seconds_table(title, uses)
    changes = {name: one.until_settled for name, one in results.changes.items()}
    yield _seconds_table("CPU seconds until spec changes have settled", changes)
    bursts = {name: one.until_settled for name, one in results.bursts.items()}
    yield _seconds_table("CPU seconds until the burst has settled", bursts)
    if results.idle is not None:
        yield _cores_table("cores in use while nothing happens", {"idle": results.idle.use})


def _rates(results: ClusterResults) -> list[float]:
    return [one.rate for one in next(iter(results.steady.values()), [])]


def _cores_table(title: str, uses: Mapping[str, CpuUse]) -> ResultTable:
    return _cpu_table(title, uses, lambda use, seconds: f"{seconds / use.seconds:.2f}")


def _seconds_table(title: str, uses: Mapping[str, CpuUse]) -> ResultTable:
    return _cpu_table(title, uses, lambda _, seconds: f"{seconds:.1f}")


def _cpu_table(
    title: str, uses: Mapping[str, CpuUse], show: Callable[[CpuUse, float], str]
) -> ResultTable:
    """One row for each process. Processes of others on the machine are what is left of its use."""
    processes = sorted({process for use in uses.values() for process in use.by_process})
    rows = []
    for process in processes:
        seconds = {name: use.by_process.get(process, 0.0) for name, use in uses.items()}
        if any(seconds[name] / use.seconds >= _SMALL_CORES for name, use in uses.items()):
            rows.append((process, *(show(use, seconds[name]) for name, use in uses.items())))
    rows.append(("all of these", *(show(use, use.measured) for use in uses.values())))
    others = [show(use, max(0.0, use.machine - use.measured)) for use in uses.values()]
    rows.append(("others on the machine", *others))
    rows.append(("machine busy", *(f"{use.machine_share:.0%}" for use in uses.values())))
    rows.append(("seconds", *(f"{use.seconds:.1f}" for use in uses.values())))
    return ResultTable(title, ("process", *uses), rows)


def _requests_table(costs: Mapping[str, RequestCost]) -> ResultTable:
    """What everybody asks of the API server for one object, and how long that takes there."""
    rows = []
    for request in most_frequent(list(costs.values())):
        cells = [_request_cell(cost, request) for cost in costs.values()]
        if any(cells):
            rows.append((request, *cells))
    columns = ("requests an object x median ms", *costs)
    return ResultTable("requests of everybody for a new object", columns, rows)


def _request_cell(cost: RequestCost, request: str) -> str:
    seconds = cost.seconds.get(request, [])
    count = len(seconds) / cost.objects
    return f"{count:.1f} x {statistics.median(seconds) * 1e3:.1f}" if count >= _SELDOM else ""


def _unchanged_table(results: ClusterResults) -> ResultTable | None:
    """What touches of unchanged objects lead to."""
    touched, idle = results.touched, results.idle
    if touched is None or idle is None:
        return None
    counters, others = touched.work.counters, touched.work.other_reconciles
    rows = [
        ("objects touched", f"{touched.touches:,}"),
        ("reconciles", f"{counters.reconciles:,}"),
        ("of other objects", f"{others:,}"),
        ("requests of the operator in their namespace", _counted(touched.requests)),
        ("requests of the operator about the cluster", _counted(touched.cluster_requests)),
        ("CPU of the operator above idle, s", f"{_cpu_above_idle(touched.use, idle):.2f}"),
        ("idle: reconciles", f"{idle.work.counters.reconciles:,}"),
        ("idle: requests of the operator", f"{idle.requests:,}"),
        ("idle: seconds", f"{idle.use.seconds:.0f}"),
    ]
    return ResultTable("reconciles of unchanged objects", ("", "Tonnage"), rows)


def _counted(requests: Mapping[str, int]) -> str:
    counted = (f"{count} x {request}" for request, count in sorted(requests.items()))
    return ", ".join(counted) or "none"
