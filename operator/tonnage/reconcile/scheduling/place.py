"""Choose the pool that the replicas run on, and decide when they stay where they are.

A running replica is worth more than a better pool. So a placement is kept as long as the spec that
it was chosen for has not changed (`placement_digest`) and its pool can run it. Replicas that wait
for GPUs of their pool, all or some, leave it only after `placement.fallback.after`, and so do
replicas that do not come up there; running replicas leave it by choice only where the user asked
for that (`retain`), and one object at a time. A placement that is seconds old and of which no pod
has a node is chosen again at once if its pool cannot run it.
"""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from tonnage import delays
from tonnage.api.placement import SpreadPolicy
from tonnage.placement.model import Candidate, Decision, Option
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.spread import Share
from tonnage.reconcile.observation.attempts import starts_without_memory
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.migration import Migration
from tonnage.reconcile.observation.serving import (
    find_secondary_deployments,
    serving_deployment,
)
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import Pending, Scheduled, Unschedulable, format_shortage
from tonnage.reconcile.scheduling.placed_for import find_placed_for
from tonnage.reconcile.scheduling.retain import (
    find_fallback_target,
    make_fallback_migration,
    plan_migration,
    short_since,
    unplaced_since,
    wait_of,
)
from tonnage.reconcile.scheduling.search import (
    Search,
    count_held,
    known_to_running,
    make_request,
    with_current_pool,
)
from tonnage.reconcile.scheduling.spread import (
    may_spread,
    name_placements,
    split_replicas,
)

_MISFITS: Final = frozenset(
    {
        RejectedReason.KV_CACHE_DOES_NOT_FIT,
        RejectedReason.OVERHEAD_DOES_NOT_FIT,
        RejectedReason.WEIGHTS_DO_NOT_FIT,
        RejectedReason.ILLEGAL_PARALLELISM,
        RejectedReason.INCOMPATIBLE,
        RejectedReason.UNSUPPORTED_ARCHITECTURE,
        RejectedReason.OVER_BUDGET,
        RejectedReason.NO_PRICE_KNOWN,
        RejectedReason.TOO_SLOW,
        RejectedReason.NO_ESTIMATE,
        RejectedReason.FAILED_BEFORE,
        RejectedReason.NOT_SELECTED,
        RejectedReason.NOT_ALLOWED,
    }
)
"""Reasons that no free GPU removes: the pool does not match the spec any more."""


def place(context: ReconcileContext, *, bound: bool = False) -> Scheduled | Pending | Unschedulable:
    """Judge every pool and decide where the replicas belong.

    `bound`: replicas on a pool that the spec still leads to do not leave it, by need or by choice.
    """
    observation = context.observation
    search = Search(context, context.own_pools(), bound)
    serving = serving_deployment(observation)
    if serving is None:
        return _spread(search, _schedule(search.decide(make_request(search)), None), None)
    current = with_current_pool(search, serving)
    others = find_secondary_deployments(observation, serving)
    secondary = tuple(with_current_pool(search, deployment) for deployment in others)
    search = replace(search, secondary=secondary)
    decision = search.decide(
        make_request(
            search,
            (current.pool, current.parallelism),
            count_held(observation.pods, current),
            current.adjustments,
            known_to_running(search, current),
            find_placed_for(context, current),
            current.engine,
        )
    )
    if decision.chosen is not None and decision.chosen.pool.name == current.pool:
        return _stay(search, current, decision, decision.chosen)
    if not bound and _is_provisional(search, current):
        return _spread(search, _schedule(search.decide(make_request(search)), None), None)
    return _wait_for_pool(search, current, decision) or _fall_back(search, current, decision)


def _schedule(decision: Decision, last_migration: Migration | None) -> Scheduled | Unschedulable:
    """Take the chosen option, with as many replicas as can run there, now or on nodes to come."""
    chosen = decision.chosen
    if chosen is None:
        return Unschedulable(decision)
    granted = min(chosen.replicas, max(chosen.capacity, chosen.grown_capacity))
    return Scheduled(decision, chosen, granted, last_migration)


def _spread(
    search: Search, placed: Scheduled | Unschedulable, current: ChildDeployment | None
) -> Scheduled | Unschedulable:
    """Add secondary placements, where the user allows that and the replicas need them."""
    if not isinstance(placed, Scheduled):
        return placed
    placement, option = search.context.spec.placement, placed.option
    running = tuple(one for one in (current, *search.secondary) if one is not None)
    when_short = placement.spread.policy is SpreadPolicy.WHEN_SHORT
    enough = when_short and not search.secondary and option.capacity >= option.replicas
    if enough or option.replicas == 0 or not may_spread(placement):
        return _schedule_on_one_pool(placed, running)
    shares = name_placements(
        split_replicas(placement, placed.decision, running, search.has_failed), running
    )
    own = next((share for share in shares if share.option.pool is option.pool), None)
    if own is None and shares:
        return _promote_secondary(search, placed, shares[0].option, running, current)
    others = tuple(share for share in shares if share is not own)
    if own is None or not others:
        return _schedule_on_one_pool(placed, running)
    to_come = option.grown_capacity - option.capacity
    scheduled = replace(placed, option=own.option, granted=own.replicas, secondary=others)
    return replace(scheduled, granted=own.replicas + min(scheduled.missing_replicas, to_come))


def _schedule_on_one_pool(placed: Scheduled, running: Sequence[ChildDeployment]) -> Scheduled:
    """Without secondary placements; a placement that was secondary once keeps its name."""
    (share,) = name_placements([Share(placed.option, placed.granted)], running)
    return replace(placed, option=share.option)


def _promote_secondary(
    search: Search,
    placed: Scheduled,
    first: Option,
    running: Sequence[ChildDeployment],
    current: ChildDeployment | None,
) -> Scheduled | Unschedulable:
    """The first placement has no share left: make a secondary one the first.

    The old first placement stays next to it for a moment, as it is, so that it is clear which one
    comes first.
    """
    secondary = tuple(deployment for deployment in running if deployment.pool != first.pool.name)
    request = make_request(
        replace(search, secondary=secondary),
        (first.pool.name, first.parallelism),
        engine=first.engine,
    )
    if request.demanded is not None:
        request = replace(request, demanded=replace(request.demanded, replicas=first.replicas))
    decision = search.decide(request)
    shares = split_replicas(search.context.spec.placement, decision, running, search.has_failed)
    if not shares or shares[0].option is not decision.chosen:
        return placed
    last_migration = placed.last_migration
    if current is not None:
        shares, last_migration = (*shares, Share(placed.option, current.wanted)), None
    own, *others = name_placements(shares, running)
    return Scheduled(decision, own.option, own.replicas, last_migration, secondary=tuple(others))


def _migrate(
    search: Search, option: Option, last_migration: Migration
) -> Scheduled | Unschedulable:
    """Leave the pool for the option."""
    pool_and_parallelism, adjustments = (option.pool.name, option.parallelism), option.adjustments
    request = make_request(
        search, pool_and_parallelism, adjustments=adjustments, engine=option.engine
    )
    if request.demanded is not None:  # as many as carry the same load there
        demanded = replace(request.demanded, replicas=option.replicas)
        request = replace(request, demanded=demanded)
    return _spread(search, _schedule(search.decide(request), last_migration), None)


def _stay(
    search: Search, current: ChildDeployment, decision: Decision, chosen: Option
) -> Scheduled | Unschedulable:
    """Keep the pool, unless the replicas have been short of GPUs for too long or do not come up, or
    the user asked to migrate to a better one and this object may migrate now."""
    placed = _schedule(decision, current.last_migration)
    assert isinstance(placed, Scheduled), "a choice was made"
    placed = replace(placed, silent=_silent_nodes(search, current, chosen))
    spread = _spread(search, placed, current)
    if not isinstance(spread, Scheduled) or spread.option.pool is not chosen.pool:
        return spread
    placed = spread
    cause = search.failed_pools.get(current.pool)
    if cause is not None and not placed.secondary and current.ready == 0:
        return _leave_later(
            search, current, placed, current.since, f"its replicas did not come up: {cause}"
        )
    by_load = search.context.accepted.demanded is not None and search.runs(current.placement)
    if placed.is_short and not by_load:  # more load never makes serving replicas fall back
        return _stay_short(search, current, placed)
    if placed.secondary:
        return placed
    context = search.context
    observation, placement = context.observation, context.spec.placement
    migration = plan_migration(observation, placement, decision, current, context.now)
    if migration is None or search.has_failed(migration.option):
        return placed
    # The replicas here stop only once others serve there.
    if not context.quotas_admit_another(migration.option):
        return placed
    may_go = context.admission.may_migrate and migration.converged and not search.bound
    if migration.moves_at > context.now or not may_go:
        return replace(placed, migration=migration)
    last_migration = Migration(migration.reason, current.pool, context.now, migration.why)
    return _migrate(search, migration.option, last_migration)


def _stay_short(
    search: Search, current: ChildDeployment, placed: Scheduled
) -> Scheduled | Unschedulable:
    """Wait for more GPUs here, up to a time, if all replicas could run elsewhere."""
    since = short_since(search.context.observation, current, search.context.now)
    running = search.runs(current.placement)
    why = f"it had {format_shortage(placed)}"
    return _leave_later(search, current, placed, since, why, running=running)


def _leave_later(
    search: Search,
    current: ChildDeployment,
    placed: Scheduled,
    since: datetime,
    why: str,
    *,
    running: bool = False,
) -> Scheduled | Unschedulable:
    """Leave the pool once `placement.fallback.after` has passed, if another pool has capacity: for
    all replicas, or for some where none is `running`."""
    target = find_fallback_target(placed.decision, current, running=running)
    if target is None:
        return placed
    leaves_at = since + wait_of(search.context.spec.placement.fallback.after)
    if leaves_at > search.context.now or search.bound:
        return replace(placed, leaves_at=leaves_at)
    last_migration = make_fallback_migration(current, why, target.pool.name, search.context.now)
    return _migrate(search, target, last_migration)


def _silent_nodes(search: Search, current: ChildDeployment, option: Option) -> tuple[str, ...]:
    """Silent nodes whose replicas fit nowhere else in the pool, or keep those in their place from
    starting. Their GPUs stay reserved meanwhile, so that a node that comes back finds its
    replicas."""
    held_up = search.held_up(current) if current.ready < option.replicas else []
    lost = search.lost(current.placement)
    held = count_held((pod for pod in search.pods if pod not in lost), current)
    footprint = option.parallelism.footprint
    elsewhere = max(option.pool.replica_capacity(footprint, option.others), held)
    stuck = held_up if elsewhere >= option.replicas else [*lost, *held_up]
    return tuple(sorted({pod.node for pod in stuck if pod.node}))


def _wait_for_pool(search: Search, current: ChildDeployment, decision: Decision) -> Pending | None:
    """Whether the replicas of a pool that cannot take them stay there, or still wait for it.

    While any replica is scheduled they stay, since the nodes may only have lost their labels,
    unless the pool is too small for the current spec, or the replicas ran out of memory and can
    start elsewhere. With zero replicas none waits.
    """
    observation = search.context.observation
    if decision.chosen is not None and _ran_out_of_memory(search, current) and not search.bound:
        return None
    candidate = _find_verdict(current, decision)
    why = _format_verdict(candidate)
    running = search.runs(current.placement)
    misfit = candidate is not None and candidate.reason in _MISFITS
    if running and not misfit:
        return Pending(decision, current, why, None)
    if search.bound:
        return Pending(decision, current, why, None)
    if misfit and decision.chosen is None:
        return None
    if current.wanted == 0 and not running:
        return None
    if running:
        since = unplaced_since(observation, search.context.now)
    else:
        since = short_since(observation, current, search.context.now)
    until = since + wait_of(search.context.spec.placement.fallback.after)
    return Pending(decision, current, why, until) if until > search.context.now else None


def _is_provisional(search: Search, current: ChildDeployment) -> bool:
    """Whether the placement was first chosen just now and no pod has a node yet.

    It was chosen for nodes that were leaving or that others took: waiting for them gains nothing,
    and choosing again migrates no replica.
    """
    age = search.context.now - current.since
    has_started = current.completed or current.ready or current.last_migration is not None
    if has_started or age > timedelta(seconds=delays.PROVISIONAL):
        return False
    return not any(pod.node for pod in search.pods if pod.placement == current.placement)


def _ran_out_of_memory(search: Search, current: ChildDeployment) -> bool:
    """Whether replicas with these very settings ran out of memory."""
    settings, here = (
        (current.parallelism, current.adjustments),
        (current.engine, current.accelerator),
    )
    tried = starts_without_memory(search.context.attempts, search.pools)
    return settings in [(one.parallelism, one.adjustments) for one in tried if one.is_of(*here)]


def _fall_back(
    search: Search, current: ChildDeployment, decision: Decision
) -> Scheduled | Unschedulable:
    """Take another pool, since this one could not hold the replicas for so long."""
    if decision.chosen is None:
        return Unschedulable(decision)
    why = _format_verdict(_find_verdict(current, decision))
    last_migration = make_fallback_migration(
        current, why, decision.chosen.pool.name, search.context.now
    )
    return _spread(search, _schedule(decision, last_migration), None)


def _find_verdict(current: ChildDeployment, decision: Decision) -> Candidate | None:
    """The verdict on the pool that the replicas are to leave; None when the pool has vanished."""
    return next((one for one in decision.candidates if one.pool.name == current.pool), None)


def _format_verdict(candidate: Candidate | None) -> str:
    return candidate.message if candidate else "it has no nodes"
