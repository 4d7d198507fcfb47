"""Which pool the replicas run on, and when they stay where they are.

A running replica is worth more than a better place. So a placement is kept as long as what it was
chosen for has not changed (`placed_for`) and its pool can run it. Replicas that wait for GPUs of
their pool, all or some, leave it only after `placement.fallback.after`; replicas that run leave it
by choice only where the user asked for that (`retain`), and one object at a time.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.inference import SpreadPolicy
from tonnage.fit.corrections import Corrections
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.decide import decide
from tonnage.placement.model import Candidate, Decision, Option, Request
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.spread import Share
from tonnage.reconcile.attempts import starts_without_memory
from tonnage.reconcile.children import ChildDeployment, ChildPod
from tonnage.reconcile.context import ReconcileContext
from tonnage.reconcile.learning import known_when_placed
from tonnage.reconcile.move import Move
from tonnage.reconcile.outcome import Pending, Scheduled, Unschedulable, format_shortage
from tonnage.reconcile.retain import (
    find_prospect,
    find_relief,
    move_away,
    scheduled,
    short_since,
    unplaced_since,
    wait_of,
)
from tonnage.reconcile.serving import pool_now, serving_deployment, shares_beside
from tonnage.reconcile.spreading import may_spread, name_placements, running_beside, split

_MISFITS: Final = frozenset(
    {
        RejectedReason.KV_CACHE_DOES_NOT_FIT,
        RejectedReason.OVERHEAD_DOES_NOT_FIT,
        RejectedReason.WEIGHTS_DO_NOT_FIT,
        RejectedReason.ILLEGAL_PARALLELISM,
        RejectedReason.INCOMPATIBLE,
        RejectedReason.OVER_BUDGET,
        RejectedReason.NO_PRICE_KNOWN,
        RejectedReason.TOO_SLOW,
        RejectedReason.NO_ESTIMATE,
        RejectedReason.FAILED_BEFORE,
        RejectedReason.NOT_SELECTED,
        RejectedReason.NOT_ALLOWED,
    }
)
"""What no GPU that becomes free can mend: the pool is not what the user asks for any more."""


@dataclass(frozen=True, slots=True)
class _Search:
    """One search for a place: `pools` have the capacity that is there for this object. `bound`: the
    replicas do not leave a pool that the spec still leads to. `beside` are the Deployments that
    carry what the first one does not."""

    context: ReconcileContext
    pools: Sequence[Pool]
    bound: bool
    beside: tuple[ChildDeployment, ...] = ()

    @property
    def pods(self) -> tuple[ChildPod, ...]:
        return self.context.observation.pods

    def decide(self, request: Request) -> Decision:
        dependencies = self.context.dependencies
        return decide(request, self.pools, dependencies.catalog, dependencies.memory)

    def lost(self, placement: str) -> list[ChildPod]:
        """Pods of the placement that do not answer, on nodes whose kubelet is silent."""
        fleet = self.context.fleet
        pods = scheduled(self.pods, placement)
        return [pod for pod in pods if not pod.ready and fleet.is_silent(pod.node or "")]

    def has_failed(self, option: Option) -> bool:
        """Whether replicas did not come up there; none is moved to it by choice again."""
        return self.context.attempts.have_failed_on(option.pool.name, option.parallelism)

    def runs(self, placement: str) -> bool:
        """Whether any pod of the placement has GPUs of a node, as far as is known."""
        return len(scheduled(self.pods, placement)) > len(self.lost(placement))


def place(context: ReconcileContext, *, bound: bool = False) -> Scheduled | Pending | Unschedulable:
    """Judge every pool and settle where the replicas belong.

    `bound`: those that run on a pool that the spec still leads to do not leave it, by need or by
    choice.
    """
    observation = context.observation
    search = _Search(context, context.own_pools(), bound)
    serving = serving_deployment(observation)
    if serving is None:
        return _spread(search, _settle(search.decide(_request(search)), None), None)
    current = _where_it_runs(search, serving)
    beside = (_where_it_runs(search, found) for found in shares_beside(observation, serving))
    search = replace(search, beside=tuple(beside))
    decision = search.decide(
        _request(
            search,
            (current.pool, current.parallelism),
            _count_held(observation.pods, current),
            current.adjustments,
            _known_when_placed(search, current),
        )
    )
    if decision.chosen is not None and decision.chosen.pool.name == current.pool:
        return _stay(search, current, decision, decision.chosen)
    return _hold(search, current, decision) or _fall_back(search, current, decision)


def _request(
    search: _Search,
    keep: tuple[str, Parallelism] | None = None,
    held: int = 0,
    adjustments: EngineAdjustments = UNADJUSTED,
    known: Corrections | None = None,
) -> Request:
    context, corrections = search.context, search.context.corrections
    return Request(
        owner=context.observation.owner,
        spec=context.spec,
        checkpoint=context.accepted.checkpoint,
        keep=keep,
        held=held,
        tried=starts_without_memory(context.attempts, search.pools),
        demanded=context.accepted.demanded,
        kept_adjustments=adjustments,
        corrections=corrections,
        kept_corrections=corrections if known is None else known,
        beside=running_beside(search.beside, lambda found: _count_held(search.pods, found)),
    )


def _where_it_runs(search: _Search, found: ChildDeployment) -> ChildDeployment:
    pods = search.pods
    return replace(found, pool=pool_now(found, pods, search.pools, search.context.fleet))


def _known_when_placed(search: _Search, current: ChildDeployment) -> Corrections:
    known = search.context.corrections
    for found in (current, *search.beside):
        known = known_when_placed(found, search.context.accepted, known, search.context.catalog)
    return known


def _count_held(pods: Iterable[ChildPod], current: ChildDeployment) -> int:
    """Replicas that have their GPUs; a pod of an older split has those of another replica."""
    mine = scheduled(pods, current.placement)
    return sum(pod.gpus == current.parallelism.gpus for pod in mine)


def _settle(decision: Decision, moved: Move | None) -> Scheduled | Unschedulable:
    """Take what was chosen, with as many replicas as can run there, now or on nodes to come."""
    chosen = decision.chosen
    if chosen is None:
        return Unschedulable(decision)
    granted = min(chosen.replicas, max(chosen.room, chosen.grown_room))
    return Scheduled(decision, chosen, granted, moved)


def _spread(
    search: _Search, placed: Scheduled | Unschedulable, current: ChildDeployment | None
) -> Scheduled | Unschedulable:
    """The placement with others beside it, where the user allows that and it is needed."""
    if not isinstance(placed, Scheduled):
        return placed
    placing, option = search.context.spec.placement, placed.option
    there = tuple(found for found in (current, *search.beside) if found is not None)
    when_short = placing.spread.policy is SpreadPolicy.WHEN_SHORT
    enough = when_short and not search.beside and option.room >= option.replicas
    if enough or option.replicas == 0 or not may_spread(placing):
        return _alone(placed, there)
    shares = name_placements(split(placing, placed.decision, there, search.has_failed), there)
    own = next((one for one in shares if one.option.pool is option.pool), None)
    if own is None and shares:
        return _go_beside(search, placed, shares[0].option, there, current)
    others = tuple(one for one in shares if one is not own)
    if own is None or not others:
        return _alone(placed, there)
    to_come = option.grown_room - option.room
    found = replace(placed, option=own.option, granted=own.replicas, beside=others)
    return replace(found, granted=own.replicas + min(found.lacking, to_come))


def _alone(placed: Scheduled, there: Sequence[ChildDeployment]) -> Scheduled:
    """With nothing beside; a placement that was beside another once keeps its name."""
    (share,) = name_placements([Share(placed.option, placed.granted)], there)
    return replace(placed, option=share.option)


def _go_beside(
    search: _Search,
    placed: Scheduled,
    first: Option,
    there: Sequence[ChildDeployment],
    current: ChildDeployment | None,
) -> Scheduled | Unschedulable:
    """Nothing is left for the placement that the others were beside: one of these comes first.

    It is beside that one for a moment, as it is, so that nobody can mistake which comes first.
    """
    beside = tuple(found for found in there if found.pool != first.pool.name)
    request = _request(replace(search, beside=beside), (first.pool.name, first.parallelism))
    if request.demanded is not None:
        request = replace(request, demanded=replace(request.demanded, replicas=first.replicas))
    decision = search.decide(request)
    shares = split(search.context.spec.placement, decision, there, search.has_failed)
    if not shares or shares[0].option is not decision.chosen:
        return placed
    moved = placed.moved
    if current is not None:
        shares, moved = (*shares, Share(placed.option, current.wanted)), None
    own, *others = name_placements(shares, there)
    return Scheduled(decision, own.option, own.replicas, moved, beside=tuple(others))


def _go(search: _Search, option: Option, moved: Move) -> Scheduled | Unschedulable:
    """Leave the pool for the option."""
    place, adjustments = (option.pool.name, option.parallelism), option.adjustments
    request = _request(search, place, adjustments=adjustments)
    if request.demanded is not None:  # as many as do there what the load asks for here
        demanded = replace(request.demanded, replicas=option.replicas)
        request = replace(request, demanded=demanded)
    return _spread(search, _settle(search.decide(request), moved), None)


def _stay(
    search: _Search, current: ChildDeployment, decision: Decision, chosen: Option
) -> Scheduled | Unschedulable:
    """Go on where the replicas are, unless they have been short of GPUs for too long, or the user
    asked to leave for something better and it is their turn."""
    placed = _settle(decision, current.moved)
    assert isinstance(placed, Scheduled), "a choice was made"
    placed = replace(placed, silent=_silent_nodes(search, current, chosen))
    spread = _spread(search, placed, current)
    if not isinstance(spread, Scheduled) or spread.option.pool is not chosen.pool:
        return spread
    placed = spread
    by_load = search.context.accepted.demanded is not None and search.runs(current.placement)
    if placed.is_short and not by_load:  # what more load asks for moves nothing that serves by need
        return _stay_short(search, current, placed)
    if placed.beside:
        return placed
    context = search.context
    observation, placing = context.observation, context.spec.placement
    prospect = find_prospect(observation, placing, decision, current, context.now)
    if prospect is None or search.has_failed(prospect.option):
        return placed
    may_go = context.admission.may_move and prospect.at_rest and not search.bound
    if prospect.moves_at > context.now or not may_go:
        return replace(placed, prospect=prospect)
    moved = Move(prospect.reason, current.pool, context.now, prospect.why)
    return _go(search, prospect.option, moved)


def _stay_short(
    search: _Search, current: ChildDeployment, placed: Scheduled
) -> Scheduled | Unschedulable:
    """Wait for more room here, up to a time, if all replicas could run elsewhere."""
    running = search.runs(current.placement)
    relief = find_relief(placed.decision, current, running=running)
    if relief is None:
        return placed
    since = short_since(search.context.observation, current, search.context.now)
    leaves_at = since + wait_of(search.context.spec.placement.fallback.after)
    if leaves_at > search.context.now or search.bound:
        return replace(placed, leaves_at=leaves_at)
    why = f"it had {format_shortage(placed)}"
    return _go(search, relief, move_away(current, why, relief.pool.name, search.context.now))


def _silent_nodes(search: _Search, current: ChildDeployment, option: Option) -> tuple[str, ...]:
    """Nodes whose replicas have no other room in the pool; what they hold stays theirs meanwhile,
    so that a node that comes back finds them."""
    lost = search.lost(current.placement)
    known = _count_held((pod for pod in search.pods if pod not in lost), current)
    elsewhere = max(option.pool.room_for(option.parallelism.gpus), known)
    if elsewhere >= option.replicas:
        return ()
    return tuple(sorted({pod.node for pod in lost if pod.node}))


def _hold(search: _Search, current: ChildDeployment, decision: Decision) -> Pending | None:
    """Whether the replicas of a pool that cannot take them stay there, or still wait for it.

    While any of them is scheduled they stay, for the pool may only have vanished from sight, unless
    the pool is too small for what is asked of them by now, or they died of memory and can be
    started elsewhere. Where none was asked for, none waits.
    """
    observation = search.context.observation
    if decision.chosen is not None and _died(search, current) and not search.bound:
        return None
    verdict = _verdict_on(current, decision)
    why = _tell_verdict(verdict)
    running = search.runs(current.placement)
    misfit = verdict is not None and verdict.reason in _MISFITS
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


def _died(search: _Search, current: ChildDeployment) -> bool:
    """Whether replicas that are started just so died of memory."""
    now = current.accelerator, current.parallelism, current.adjustments
    tried = starts_without_memory(search.context.attempts, search.pools)
    return now in [(one.accelerator_id, one.parallelism, one.adjustments) for one in tried]


def _fall_back(
    search: _Search, current: ChildDeployment, decision: Decision
) -> Scheduled | Unschedulable:
    """Take another pool, since this one could not hold the replicas for so long."""
    if decision.chosen is None:
        return Unschedulable(decision)
    why = _tell_verdict(_verdict_on(current, decision))
    moved = move_away(current, why, decision.chosen.pool.name, search.context.now)
    return _spread(search, _settle(decision, moved), None)


def _verdict_on(current: ChildDeployment, decision: Decision) -> Candidate | None:
    """What was found of the pool that the replicas are to leave, None when it has vanished."""
    return next((one for one in decision.candidates if one.pool.name == current.pool), None)


def _tell_verdict(verdict: Candidate | None) -> str:
    return verdict.message if verdict else "none of its nodes is there"
