"""Every pool judged, one chosen, every reason kept.

Algorithm. Each pool gives one candidate by itself (`PoolJudge`). Where the replicas run on a pool
and split that still carry them, that option is taken again whatever costs less. Otherwise the best
ranked candidate with room is taken (`ranking.rank`), and each other one is told apart from it. With
nothing to take, what came closest decides the reason: GPUs that are not free, then memory, then
compatibility, then that no pool qualified at all.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.inference import PlacementPolicy
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import Pool
from tonnage.placement.compare import compare
from tonnage.placement.judge import PoolJudge, keeps_its_place
from tonnage.placement.messages import (
    format_count,
    tell_chosen,
    tell_need,
    tell_pools,
    tell_reasons,
)
from tonnage.placement.model import Candidate, Decision, Option, Request, Verdict
from tonnage.placement.ranking import rank
from tonnage.placement.reasons import ChosenReason, RejectedReason

_LISTED_IN: Final = {reason.value: place for place, reason in enumerate(RejectedReason)}
_NO_ROOM: Final = frozenset({RejectedReason.INSUFFICIENT_GPUS, RejectedReason.NO_USABLE_NODES})
_NO_FIT: Final = frozenset(
    {
        RejectedReason.KV_CACHE_DOES_NOT_FIT,
        RejectedReason.OVERHEAD_DOES_NOT_FIT,
        RejectedReason.WEIGHTS_DO_NOT_FIT,
        RejectedReason.ILLEGAL_PARALLELISM,
    }
)
_BEST_OF: Final = {
    PlacementPolicy.LOWEST_COST: "the lowest cost",
    PlacementPolicy.FEWEST_GPUS: "the fewest GPUs",
    PlacementPolicy.HIGHEST_THROUGHPUT: "the highest estimated throughput",
}


def decide(request: Request, pools: Sequence[Pool], catalog: Catalog) -> Decision:
    """Choose a pool for the request; the order of the pools does not matter.

    Raises fit.options.InvalidOptionError for engine settings that cannot be.
    """
    policy = request.spec.placement.policy
    judge = PoolJudge(request, catalog)
    judged = [judge.judge(pool) for pool in pools]
    feasible = [found for found in judged if found.verdict is Verdict.FEASIBLE]
    rejected = [found for found in judged if found.verdict is Verdict.REJECTED]
    feasible.sort(key=lambda found: rank(_option(found), policy))
    rejected.sort(key=lambda found: _rejected_order(found, policy))
    if not feasible:
        reason, message = _why_nothing(rejected)
        return Decision(tuple(rejected), None, reason, message)
    kept = next((found for found in feasible if keeps_its_place(request, _option(found))), None)
    return _choose(kept or feasible[0], feasible, rejected, policy)


def _choose(
    taken: Candidate,
    feasible: Sequence[Candidate],
    rejected: Sequence[Candidate],
    policy: PlacementPolicy,
) -> Decision:
    """Take one; where it only keeps its place, the better ones come before it in `feasible`."""
    chosen = _option(taken)
    place = feasible.index(taken)
    others = [
        *(_compared(found, chosen, policy, kept=True) for found in feasible[:place]),
        *(_compared(found, chosen, policy, kept=False) for found in feasible[place + 1 :]),
    ]
    kept = place > 0
    reason = ChosenReason.KEEPS_ITS_PLACE if kept else ChosenReason(policy.value)
    pools = format_count(len(feasible), "pool")
    why = "its replicas run there" if kept else f"{_BEST_OF[policy]} of {pools} with room"
    message = tell_chosen(chosen, why)
    first = Candidate(taken.pool, Verdict.CHOSEN, reason, message, chosen)
    return Decision(
        candidates=(first, *others, *rejected),
        chosen=chosen,
        reason=_placed_reason(chosen),
        message=f"{taken.pool.name}: {message}",
    )


def _compared(
    candidate: Candidate, chosen: Option, policy: PlacementPolicy, *, kept: bool
) -> Candidate:
    reason, message = compare(_option(candidate), chosen, policy, kept=kept)
    return replace(candidate, reason=reason, message=message)


def _placed_reason(chosen: Option) -> Reason:
    if chosen.replicas == 0:
        return Reason.SCALED_TO_ZERO
    return Reason.POOL_CHOSEN if chosen.room >= chosen.replicas else Reason.INSUFFICIENT_GPUS


def _why_nothing(rejected: Sequence[Candidate]) -> tuple[Reason, str]:
    """The reason of condition Placed when no pool can take even one replica."""
    waiting = [found for found in rejected if found.reason in _NO_ROOM]
    if waiting:
        return Reason.INSUFFICIENT_GPUS, _tell_waiting(waiting)
    too_small = [found for found in rejected if found.reason in _NO_FIT]
    if too_small:
        return Reason.DOES_NOT_FIT, f"fits on no pool; {tell_pools(too_small)}"
    incompatible = [found for found in rejected if found.reason == RejectedReason.INCOMPATIBLE]
    if incompatible:
        return Reason.INCOMPATIBLE_PRECISION, f"runs on no pool; {tell_pools(incompatible)}"
    if not rejected:
        return Reason.NO_MATCHING_POOL, "the cluster has no pool of GPUs"
    pools = format_count(len(rejected), "pool")
    return Reason.NO_MATCHING_POOL, f"none of {pools} qualifies: {tell_reasons(rejected)}"


def _tell_waiting(waiting: Iterable[Candidate]) -> str:
    """What the best pool lacks, first those where only other pods are in the way."""
    best = next(iter(waiting))
    if best.option is None or best.reason != RejectedReason.INSUFFICIENT_GPUS:
        return f"{best.pool.name}: {best.message}"
    return tell_need(best.option)


def _rejected_order(candidate: Candidate, policy: PlacementPolicy) -> tuple[object, ...]:
    """Listed by reason, those that would fit as they would rank, the nearest misses first."""
    place = _LISTED_IN[candidate.reason]
    if candidate.option is not None:
        return (place, 0, rank(candidate.option, policy))
    shortage = candidate.shortage
    lacking = shortage.needed_bytes - shortage.available_bytes if shortage else 0
    return (place, 1, lacking, candidate.pool.name)


def _option(candidate: Candidate) -> Option:
    assert candidate.option is not None, "only what fits is compared"
    return candidate.option
