"""Plan the Jobs that bring a checkpoint to nodes before replicas need it there. Pure.

The nodes are those of the pools that run replicas, for the case that one of their nodes fails, and
those of a pool that the replicas are to migrate to. Nothing waits for these Jobs: where they
fail, a pod downloads what is missing. They begin once all replicas serve, so that they do not
compete with a start.

A node whose Job has failed gives its place to another node. Its Job stays as the record of that, so
that the node is not tried again before others, until it expires. A Job that has succeeded is made
again each day on the same node, before it expires: the files may be gone, and would otherwise be
downloaded to whichever node has the most free GPUs on that day.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import IntEnum
from typing import Final

from tonnage import delays
from tonnage.api.model import PrefetchStatus
from tonnage.api.parse import InvalidSpecError
from tonnage.api.text import redact
from tonnage.engines.replica import Replica
from tonnage.fit.messages import format_count
from tonnage.kube.kinds import JOBS
from tonnage.kube.protocol import Object
from tonnage.placement.model import Option
from tonnage.reconcile.actions import Action, Apply, Delete
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.findings import format_time
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.weights import PrefetchJob
from tonnage.reconcile.rollout.job_inputs import has_other_inputs, with_inputs
from tonnage.reconcile.scheduling.context import ReconcileContext, owner_of
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.prefetch_job import render_prefetch_job, wanted_prefetch_job

_NAMED_PROBLEMS: Final = 3
_WAITING: Final = "downloads begin once the spec is rolled out and all replicas are ready"
_PAUSED: Final = "no download begins while spec.rollout.paused is true"


@dataclass(frozen=True, slots=True)
class PlannedPrefetch:
    """What is done about the Jobs, and what the status says of them. `children` are the Jobs as
    rendered. The failure of an action is only reported. The nodes are chosen again after
    `again_seconds`."""

    status: PrefetchStatus | None = None
    actions: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    again_seconds: float | None = None

    def failed(self, failed: Sequence[tuple[Action, str]]) -> "PlannedPrefetch":
        """The same where these of its actions failed, with the causes."""
        if self.status is None:
            return replace(self, actions=())
        missing = sum(isinstance(action, Apply) for action, _ in failed)
        causes = list(dict.fromkeys(cause for _, cause in failed))
        which = "a Job" if len(failed) == 1 else f"{len(failed)} Jobs"
        said = f"{which} could not be written: {'; '.join(causes[:_NAMED_PROBLEMS])}"
        status = self.status.model_copy(
            update={"nodes": self.status.nodes - missing, "message": said}
        )
        return replace(self, actions=(), status=status)


NO_PREFETCH: Final = PlannedPrefetch()


class _Rank(IntEnum):
    """Which nodes come first: what is there or under way stays, and a failure comes last."""

    HELD = 0
    """It has a Job that has not failed."""
    UNTRIED = 1
    FAILED_LONG_AGO = 2
    """Another Job may follow."""
    FAILED = 3


_KEEP_PLACE: Final = (_Rank.HELD, _Rank.FAILED)
"""Ranks of nodes that need no free GPUs now."""


@dataclass(frozen=True, slots=True)
class _Places:
    """The nodes to prefetch to, and the names of failed Jobs of others, which stay as records."""

    nodes: tuple[str, ...] = ()
    records: frozenset[str] = frozenset()


def plan_prefetch(
    context: ReconcileContext, placed: Scheduled, target: ChildDeployment | None
) -> PlannedPrefetch:
    """Plan the Jobs for a placement, of which `target` is the workload as rendered, None while it
    has to be applied."""
    count, commit = context.spec.model.prefetch_nodes, context.accepted.checkpoint.revision
    if not count:
        return end_prefetch(context)
    if commit is None or target is None or not target.serves(placed.granted):
        return NO_PREFETCH
    live = {one.job.child.name: one for one in context.observation.weights.prefetch_jobs}
    options = [share.option for share in placed.shares]
    if placed.migration is not None:
        options.append(placed.migration.option)
    actions: list[Action] = []
    wanted: dict[str, Object] = {}
    records: set[str] = set()
    problems: list[str] = []
    for option in options:
        replica = _replica(context, option)
        places = _choose_nodes(context, replica, live, count)
        rendered = [render_prefetch_job(replica, node) for node in places.nodes]
        wanted |= {job["metadata"]["name"]: with_inputs(job, replica) for job in rendered}
        records |= places.records
        if len(places.nodes) < count:
            problems.append(_explain_few(option, len(places.nodes), count))
    renewed = {name for name, one in live.items() if _is_to_renew(one, context.now)}
    for name, one in live.items():
        is_over = (
            name in renewed or _is_due(one, context.now) or has_other_inputs(one.job, wanted[name])
            if name in wanted
            else name not in records
        )
        if is_over and not one.job.child.is_ending:
            actions.append(Delete(JOBS, one.job.child))
    actions.extend(
        Apply(JOBS, body, exists=False)
        for name, body in wanted.items()
        if name not in live or name in renewed
    )
    reported = [
        one
        for name, one in live.items()
        if name in wanted or (name in records and not _is_due(one, context.now))
    ]
    return PlannedPrefetch(
        _report(reported, len(wanted), problems),
        tuple(actions),
        tuple(wanted.values()),
        delays.PREFETCH_CHECK,
    )


def end_prefetch(context: ReconcileContext) -> PlannedPrefetch:
    """Delete the Jobs where the spec asks for no prefetch any more. Nothing waits for that."""
    if context.spec.model.prefetch_nodes:
        return NO_PREFETCH
    jobs = (one.job.child for one in context.observation.weights.prefetch_jobs)
    return PlannedPrefetch(
        actions=tuple(Delete(JOBS, child) for child in jobs if not child.is_ending)
    )


def report_waiting(observation: Observation) -> PrefetchStatus | None:
    """What is there while no Job is made: the replicas are not ready, or not placed, or the rollout
    is paused. None where the spec asks for no prefetch."""
    spec = observation.spec
    if isinstance(spec, InvalidSpecError) or not spec.model.prefetch_nodes:
        return None
    jobs = observation.weights.prefetch_jobs
    return _report(jobs, len(jobs), [_PAUSED if spec.rollout.paused else _WAITING])


def _replica(context: ReconcileContext, option: Option) -> Replica:
    return Replica(
        owner_of(context.observation),
        context.spec_on(option.engine),
        context.accepted.checkpoint,
        option,
        context.catalog,
        context.dependencies.settings,
    )


def _choose_nodes(
    context: ReconcileContext, replica: Replica, live: dict[str, PrefetchJob], count: int
) -> _Places:
    """The nodes without replicas of the object to prefetch to: first those that have a Job, as long
    as pods can run there, then those that can take a replica now and were not tried, with the most
    free GPUs first. Nodes whose Jobs have failed come last, the earliest failure first. None where
    the pool keeps no weights any more.

    A cause that all nodes share, such as a revoked token, must not cost a Job on each of them: Jobs
    run, or have failed within the hour, on at most twice as many nodes as are requested.
    """
    pool, option = replica.option.pool, replica.option
    if pool.node_disk is None:
        return _Places()
    running = {pod.node for pod in context.fleet.pods_of(context.observation.key)}
    spare = [node for node in pool.nodes if node.unusable is None and node.name not in running]
    with_jobs = {one.node for one in live.values()}
    names = {
        node.name: wanted_prefetch_job(replica, node.name)
        for node in spare
        if node.name in with_jobs
    }
    jobs = {node: live[name] for node, name in names.items() if name in live}
    footprint = option.parallelism.footprint
    ranks = {node.name: _rank(jobs.get(node.name), context.now) for node in spare}
    failed_at = {node: one.job.failed or context.now for node, one in jobs.items()}
    able = sorted(
        (
            node
            for node in spare
            if ranks[node.name] in _KEEP_PLACE or node.count_pods(footprint, option.others) > 0
        ),
        key=lambda node: (failed_at.get(node.name, context.now), -node.free, node.name),
    )
    held, untried, failed_long_ago, failed = (
        [node.name for node in able if ranks[node.name] is rank] for rank in _Rank
    )
    held = held[:count]
    more = max(0, 2 * count - len(held) - len(failed))
    nodes = [*held, *[*untried, *failed_long_ago][:more], *failed][:count]
    records = frozenset(
        one.job.child.name
        for node, one in jobs.items()
        if one.job.failed is not None and node not in nodes
    )
    return _Places(tuple(nodes), records)


def _rank(job: PrefetchJob | None, now: datetime) -> _Rank:
    if job is None:
        return _Rank.UNTRIED
    if job.job.failed is None:
        return _Rank.HELD
    return _Rank.FAILED_LONG_AGO if _is_due(job, now) else _Rank.FAILED


def _is_due(one: PrefetchJob, now: datetime) -> bool:
    """Whether the Job has failed for so long that another one is to follow."""
    return one.job.failed is not None and _retry_at(one.job.failed) <= now


def _is_to_renew(one: PrefetchJob, now: datetime) -> bool:
    """Whether the Job has ended well, and another one is due to check whether the files are
    still on the same node."""
    job = one.job
    is_old = now - job.created >= timedelta(seconds=delays.PREFETCH_RENEWAL)
    return job.is_complete and is_old and not job.child.is_ending


def _retry_at(failed: datetime) -> datetime:
    return failed + timedelta(seconds=delays.PREFETCH_RETRY)


def _report(jobs: Sequence[PrefetchJob], wanted: int, notes: Sequence[str]) -> PrefetchStatus:
    problems = [*_explain_unready(jobs), *notes]
    return PrefetchStatus(
        nodes=wanted,
        ready_nodes=sum(one.job.is_complete for one in jobs),
        message=redact("; ".join(problems[:_NAMED_PROBLEMS])) or None,
    )


def _explain_unready(jobs: Sequence[PrefetchJob]) -> Iterator[str]:
    """What the Jobs lack, failures first."""
    for one in sorted(jobs, key=lambda one: (one.job.failed is None, one.node)):
        job, name = one.job, one.job.child.name
        if job.failed is not None:
            again = format_time(_retry_at(job.failed))
            yield f"node {one.node}: {job.cause} (Job {name}); not tried again before {again}"
        elif job.cause is not None:
            yield f"node {one.node}: {job.cause} (Job {name})"
        elif not job.is_complete:
            since = format_time(job.created)
            yield f"node {one.node}: not downloaded yet (Job {name}, created at {since})"


def _explain_few(option: Option, nodes: int, count: int) -> str:
    if option.pool.node_disk is None:
        return f"pool {option.pool.name} keeps no weights on its nodes"
    return (
        f"pool {option.pool.name} has {format_count(nodes, 'node')} without replicas and with free"
        f" GPUs and disk for one; {count} are requested"
    )
