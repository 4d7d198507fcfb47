"""The rounds of `make bench-cluster`: what one controller is given, and what is measured of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from benchmarks.cluster.api_client import ApiClient, Watch, WatchActivity
from benchmarks.cluster.baselines import ROUND_LABEL, TONNAGE, MeasuredController
from benchmarks.cluster.latency_probe import ChangeProbe, LatencyProbe, Stage
from benchmarks.cluster.load_generator import Call, run_at_rate, run_parallel
from benchmarks.cluster.operator_metrics import OperatorCounters, parse_counters
from benchmarks.cluster.reconcile_log import ReconcileLog
from benchmarks.cluster.resource_cost import RequestCost, describe_request, requests_of, writes_of
from benchmarks.cluster.usage import CpuMeter, CpuUse
from e2e.harness.admin import Admin
from e2e.harness.audit_log import AuditLog
from e2e.harness.failure import HarnessError
from e2e.harness.operator_process import OperatorProcess

_PRESENT: Final = "present"
"""Round of the objects that exist while others are created."""

_TOUCH_ANNOTATION: Final = "scale.example.org/touch"
_LATE_SECONDS: Final = 120.0
"""How long the last objects of a steady round may take; later ones count with this time."""

_BURST_SECONDS: Final = 600.0
_QUIET_SECONDS: Final = 5.0
"""A controller whose objects have not changed for so long has settled."""

_CLEARED_SECONDS: Final = 2.0
"""A cluster without any writes but heartbeats for so long has finished deleting."""

_SETTLE_TIMEOUT: Final = 300.0
_POLL_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """Objects that are present, steady rates (objects a second, for how many seconds), objects of
    the burst, spec changes and touches a second, seconds of idleness, replicas of each object."""

    present: int = 300
    steady: tuple[tuple[float, float], ...] = ((5, 60), (10, 60), (20, 15))
    burst: int = 1000
    changes_per_second: float = 5
    touches_per_second: float = 10
    idle_seconds: float = 30
    replicas: int = 0

    def shortened(self) -> LoadPlan:
        """A tenth of the objects and durations, at the same rates."""
        return replace(
            self,
            present=self.present // 10,
            steady=tuple((rate, seconds / 10) for rate, seconds in self.steady),
            burst=self.burst // 10,
            idle_seconds=self.idle_seconds / 10,
        )

    def describe(self) -> dict[str, str]:
        """The load as a page shows it."""
        steady = ", ".join(f"{rate:g}/s for {seconds:g} s" for rate, seconds in self.steady)
        return {
            "objects present": f"{self.present:,}",
            "new objects": steady,
            "burst": f"{self.burst:,}",
            "spec changes": f"{self.changes_per_second:g}/s",
            "touches": f"{self.touches_per_second:g}/s",
            "idle": f"{self.idle_seconds:g} s",
            "replicas of an object": f"{self.replicas}",
        }

    @property
    def most_objects(self) -> int:
        """The most that one controller has at once."""
        return self.present + max(
            self.burst, *(round(rate * seconds) for rate, seconds in self.steady)
        )


@dataclass(frozen=True, slots=True)
class OperatorWork:
    """What the operator counted in a round. `other_reconciles` are those of objects that the round
    did not create, by the log."""

    counters: OperatorCounters
    other_reconciles: int = 0


@dataclass(frozen=True, slots=True)
class CreateRound:
    """Objects created at a rate (0: as fast as possible), and seconds from each one's creation to
    each stage. `incomplete` of them had not reached all stages when the time was over."""

    rate: float
    objects: int
    present: int
    delays: Mapping[Stage, list[float]]
    stage_seconds: Mapping[Stage, float]
    """From the first request to the last object's stage."""
    incomplete: int
    creating: CpuUse
    until_settled: CpuUse
    operator: OperatorWork | None = None


@dataclass(frozen=True, slots=True)
class ChangeRound:
    """Seconds from the new generation of each parent to the child that carries it."""

    rate: float
    delays: list[float]
    incomplete: int
    until_settled: CpuUse


@dataclass(frozen=True, slots=True)
class TouchRound:
    """The operator's work on objects of which nothing has changed but an annotation of no meaning.
    Its requests meanwhile, by verb and resource: those in the namespace of the objects, and those
    about the whole cluster, which may be periodic reads."""

    touches: int
    work: OperatorWork
    requests: Mapping[str, int]
    cluster_requests: Mapping[str, int]
    use: CpuUse


@dataclass(frozen=True, slots=True)
class IdleRound:
    """The operator while nothing happens."""

    work: OperatorWork
    requests: int
    use: CpuUse


@dataclass(slots=True)
class ClusterResults:
    """All rounds, by controller."""

    steady: dict[str, list[CreateRound]] = field(default_factory=dict)
    bursts: dict[str, CreateRound] = field(default_factory=dict)
    changes: dict[str, ChangeRound] = field(default_factory=dict)
    requests: dict[str, RequestCost] = field(default_factory=dict)
    peak_rss_bytes: dict[str, int] = field(default_factory=dict)
    idle: IdleRound | None = None
    touched: TouchRound | None = None

    @property
    def other_cores(self) -> float | None:
        """Cores that programs besides the benchmark's used in all rounds, None without a round."""
        uses = [one.until_settled for rounds in self.steady.values() for one in rounds]
        uses += [one.until_settled for one in self.bursts.values()]
        uses += [one.until_settled for one in self.changes.values()]
        seconds = sum(use.seconds for use in uses)
        return sum(use.machine - use.measured for use in uses) / seconds if seconds else None


@dataclass(slots=True)
class ClusterBench:
    """A cluster with controllers in it; each method is one round."""

    admin: Admin
    client: ApiClient
    plan: LoadPlan
    pids: Mapping[str, int]
    audit_log: AuditLog
    operator: OperatorProcess
    announce: Callable[[str], None]
    reconcile_log: ReconcileLog = field(init=False)
    results: ClusterResults = field(default_factory=ClusterResults)

    def __post_init__(self) -> None:
        self.reconcile_log = ReconcileLog(self.operator.log)

    async def fill(self, controller: MeasuredController) -> None:
        """Create the objects that are to be present."""
        names = self._names(_PRESENT, self.plan.present)
        probe = LatencyProbe()
        async with self._watched(controller, probe) as activity:
            await run_parallel(self._creates(controller, names, _PRESENT))
            if not await probe.wait(names, controller.stages, _BURST_SECONDS):
                late = sorted(probe.missing(names, controller.stages))
                raise HarnessError(
                    f"{controller.name}: {len(late)} of {len(names)} objects have not all of"
                    f" {', '.join(controller.stages)} after {_BURST_SECONDS:g} s, such as {late[0]}"
                )
            await activity.quiet(_QUIET_SECONDS, _SETTLE_TIMEOUT)

    async def steady(self, controller: MeasuredController, rate: float, seconds: float) -> None:
        """Create objects at a rate, measure until all has settled, and delete them."""
        round_name = f"steady-{rate:g}"
        names = self._names(round_name, round(rate * seconds))
        cost = self.results.requests.setdefault(controller.name, RequestCost())
        async with self._cleared(controller, round_name):
            mark = self.audit_log.mark()
            result = await self._create(controller, names, round_name, rate)
            cost.add(len(names), self.audit_log.events(mark), controller.user)
            self.results.steady.setdefault(controller.name, []).append(result)

    async def burst(self, controller: MeasuredController) -> None:
        """Create many objects as fast as the API server takes them, measure, and delete them."""
        names = self._names("burst", self.plan.burst)
        async with self._cleared(controller, "burst"):
            self.results.bursts[controller.name] = await self._create(controller, names, "burst", 0)

    async def _create(
        self, controller: MeasuredController, names: Sequence[str], round_name: str, rate: float
    ) -> CreateRound:
        probe, before = LatencyProbe(), await self._counters(controller)
        async with self._watched(controller, probe) as activity:
            started, meter = time.monotonic(), CpuMeter(self.pids)
            creates = self._creates(controller, names, round_name)
            await (run_at_rate(creates, rate) if rate else run_parallel(creates))
            creating = meter.read()
            limit = _LATE_SECONDS if rate else _BURST_SECONDS
            await probe.wait(names, controller.stages, limit)
            until = time.monotonic()
            await activity.quiet(_QUIET_SECONDS, _SETTLE_TIMEOUT)
            until_settled = meter.read()
        delays = {stage: probe.delays(names, stage, until) for stage in controller.stages}
        ends = {
            stage: max(probe.reached[stage].get(name, until) for name in names) - started
            for stage in controller.stages
        }
        return CreateRound(
            rate=rate,
            objects=len(names),
            present=self.plan.present,
            delays=delays,
            stage_seconds=ends,
            incomplete=len(probe.missing(names, controller.stages)),
            creating=creating,
            until_settled=until_settled,
            operator=await self._work(controller, before, names),
        )

    async def change_specs(self, controller: MeasuredController) -> None:
        """Change the pod template of each object that is present, at a rate."""
        names = self._names(_PRESENT, self.plan.present)
        parents, value = controller.parents(self.admin), "1"
        generations = await self.client.generations(parents)
        probe, body = ChangeProbe(generations, value), controller.change(value)
        watches = (
            Watch(parents, probe.handle_parent),
            Watch(controller.children(self.admin), probe.handle_child, full_objects=True),
        )
        rate = self.plan.changes_per_second
        async with self.client.watching(*watches) as activity:
            meter = CpuMeter(self.pids)
            patches = [
                partial(self.client.merge_patch, f"{parents}/{name}", body) for name in names
            ]
            await run_at_rate(patches, rate)
            await probe.wait(names, _LATE_SECONDS)
            until = time.monotonic()
            await activity.quiet(_QUIET_SECONDS, _SETTLE_TIMEOUT)
            use = meter.read()
        incomplete = len(probe.missing(names))
        self.results.changes[controller.name] = ChangeRound(
            rate, probe.delays(names, until), incomplete, use
        )

    async def idle(self) -> None:
        """Measure what the operator does while nothing happens."""
        await self._until_no_writes()
        before, mark = await self._counters(TONNAGE), self.audit_log.mark()
        meter = CpuMeter(self.pids)
        await asyncio.sleep(self.plan.idle_seconds)
        use = meter.read()
        requests = requests_of(TONNAGE.user, self.audit_log.events(mark))
        work = await self._work(TONNAGE, before, ())
        assert work is not None
        self.results.idle = IdleRound(work, len(requests), use)

    async def touch(self) -> None:
        """Let the operator reconcile objects of which nothing has changed. A resync in that time
        reads more than these objects, so the round is repeated then."""
        self.results.touched = await self._touch_once("1")
        if self.results.touched.work.counters.last_resync is not None:
            self.announce("a resync fell into the round: repeating it")
            self.results.touched = await self._touch_once("2")

    async def _touch_once(self, value: str) -> TouchRound:
        names = self._names(_PRESENT, self.plan.present)
        parents = TONNAGE.parents(self.admin)
        body = {"metadata": {"annotations": {_TOUCH_ANNOTATION: value}}}
        await self._until_no_writes()
        before, mark = await self._counters(TONNAGE), self.audit_log.mark()
        async with self.client.watching(Watch(parents, lambda _: None)) as activity:
            meter = CpuMeter(self.pids)
            touches = [
                partial(self.client.merge_patch, f"{parents}/{name}", body) for name in names
            ]
            await run_at_rate(touches, self.plan.touches_per_second)
            await activity.quiet(_QUIET_SECONDS, _SETTLE_TIMEOUT)
            use = meter.read()
        requests = requests_of(TONNAGE.user, self.audit_log.events(mark))
        work = await self._work(TONNAGE, before, names)
        assert work is not None
        own, cluster = Counter[str](), Counter[str]()
        for request in requests:
            is_own = request["objectRef"].get("namespace") == TONNAGE.namespace
            (own if is_own else cluster)[describe_request(request)] += 1
        return TouchRound(len(names), work, own, cluster, use)

    @asynccontextmanager
    async def _cleared(
        self, controller: MeasuredController, round_name: str
    ) -> AsyncIterator[None]:
        """Delete a round's objects after the block and wait until all that followed from them is
        gone, so that each round finds the same number of objects. Raises HarnessError."""
        parents, children = controller.parents(self.admin), controller.children(self.admin)
        before = await self.client.count(children)
        yield
        await self.client.delete_collection(parents, f"{ROUND_LABEL}={round_name}")
        deadline = time.monotonic() + _SETTLE_TIMEOUT
        while (left := await self.client.count(children)) > before:
            if time.monotonic() > deadline:
                raise HarnessError(
                    f"{controller.name}: {left - before} children of {round_name} are"
                    f" still there {_SETTLE_TIMEOUT:g} s after the deletion of their parents"
                )
            await asyncio.sleep(_POLL_SECONDS)
        await self._until_no_writes()

    async def _until_no_writes(self) -> None:
        """Wait until there have been no writes but heartbeats for a while. After a long time the
        benchmark goes on: writes that never end are a load that all controllers meet."""
        deadline = time.monotonic() + _SETTLE_TIMEOUT
        while time.monotonic() < deadline:
            mark = self.audit_log.mark()
            await asyncio.sleep(_CLEARED_SECONDS)
            writes = writes_of("", self.audit_log.events(mark))
            # Heartbeats of nodes never end.
            if all(write["objectRef"]["resource"] == "nodes" for write in writes):
                return
        self.announce(f"writes have not ended in {_SETTLE_TIMEOUT:g} s")

    def _creates(
        self, controller: MeasuredController, names: Sequence[str], round_name: str
    ) -> list[Call]:
        path, replicas = controller.parents(self.admin), self.plan.replicas
        return [
            partial(self.client.create, path, controller.make(name, replicas, round_name))
            for name in names
        ]

    @asynccontextmanager
    async def _watched(
        self, controller: MeasuredController, probe: LatencyProbe
    ) -> AsyncIterator[WatchActivity]:
        watches = [
            Watch(controller.parents(self.admin), probe.handle_parent),
            Watch(controller.children(self.admin), probe.handle_child),
        ]
        if Stage.SERVICE in controller.stages:
            watches.append(Watch(controller.services(self.admin), probe.handle_service))
        async with self.client.watching(*watches) as activity:
            yield activity

    async def _counters(self, controller: MeasuredController) -> OperatorCounters | None:
        """The operator's counters by now, where it is the one that is measured."""
        if controller is not TONNAGE:
            return None
        self.reconcile_log.skip()
        return parse_counters(await asyncio.to_thread(self.operator.metrics))

    async def _work(
        self,
        controller: MeasuredController,
        before: OperatorCounters | None,
        names: Sequence[str],
    ) -> OperatorWork | None:
        """What the operator has done since `_counters()`."""
        if before is None:
            return None
        now = parse_counters(await asyncio.to_thread(self.operator.metrics))
        self.reconcile_log.refresh()
        keys = {f"{controller.namespace}/{name}" for name in names}
        return OperatorWork(now.since(before), self.reconcile_log.count_others(keys))

    @staticmethod
    def _names(round_name: str, count: int) -> list[str]:
        return [f"{round_name}-{number:05}" for number in range(count)]
