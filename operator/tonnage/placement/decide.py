"""Every pool judged, one chosen, every reason kept.

Algorithm. Each pool is judged by itself (`PoolJudge`). Where the replicas run on a pool
and split that still carry them, that option is taken again whatever costs less. Otherwise the best
ranked candidate with room is taken (`ranking.rank`), and each other one is told apart from it. Room
that a node autoscaler may add counts where no pool has any now: pods that wait for it make it add
nodes. With nothing to take, what came closest decides the reason: GPUs that are not free, then the
user's bounds on cost and latency, then memory, then compatibility, then that no pool qualified at
all.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.inference import PlacementPolicy, PlacementSpec, SpreadPolicy
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import Pool
from tonnage.placement.compare import compare
from tonnage.placement.judge import PoolJudge, keeps_its_place
from tonnage.placement.memory import Memory
from tonnage.placement.messages import (
    format_count,
    tell_chosen,
    tell_need,
    tell_pools,
    tell_reasons,
)
from tonnage.placement.model import Candidate, Decision, Option, Rejection, Request, Verdict
from tonnage.placement.ranking import Rank, preference, rank
from tonnage.placement.reasons import ChosenReason, RejectedReason, nearness

Tell = Callable[[Sequence[Candidate]], str]

_BEST_OF: Final = {
    PlacementPolicy.LOWEST_COST: "the lowest cost",
    PlacementPolicy.FEWEST_GPUS: "the fewest GPUs",
    PlacementPolicy.HIGHEST_THROUGHPUT: "the highest estimated throughput",
}


def decide(
    request: Request, pools: Sequence[Pool], catalog: Catalog, memory: Memory | None = None
) -> Decision:
    """Choose a pool for the request; the order of the pools does not matter, nor does what is
    remembered of requests before.

    Raises fit.options.InvalidOptionError for engine settings that cannot be.
    """
    policy = request.spec.placement.policy
    judge = PoolJudge(request, catalog, memory)
    judged = [(pool, judge.judge(pool)) for pool in pools]
    feasible = [found for _, found in judged if isinstance(found, Option)]
    feasible.sort(key=_order(request.spec.placement))
    rejected = [_reject(pool, found) for pool, found in judged if isinstance(found, Rejection)]
    rejected.sort(key=lambda found: _rejected_order(found, policy))
    if not feasible:
        reason, message = _why_nothing(rejected)
        return Decision(tuple(rejected), None, reason, message)
    kept = (place for place, option in enumerate(feasible) if keeps_its_place(request, option))
    return _choose(next(kept, 0), feasible, rejected, policy)


def _order(placement: PlacementSpec) -> Callable[[Option], Rank]:
    """What the options are sorted by: where the best pool is filled first, whatever it has room
    for, any that can take a replica now comes before those that cannot."""
    policy = placement.policy
    if placement.spread.policy is SpreadPolicy.BY_COST:
        return lambda option: (option.room == 0, *preference(option, policy))
    return lambda option: rank(option, policy)


def _choose(
    place: int,
    feasible: Sequence[Option],
    rejected: Sequence[Candidate],
    policy: PlacementPolicy,
) -> Decision:
    """Take the option at that place; those before it are better, and it only keeps its place."""
    chosen, kept = feasible[place], place > 0
    reason = ChosenReason.KEEPS_ITS_PLACE if kept else ChosenReason(policy.value)
    pools = format_count(len(feasible), "pool")
    why = "its replicas run there" if kept else f"{_BEST_OF[policy]} of {pools} with room"
    message = tell_chosen(chosen, why)
    first = Candidate(chosen.pool, Verdict.CHOSEN, reason, message, chosen)
    better = (_compare(option, chosen, policy, kept=True) for option in feasible[:place])
    others = (_compare(option, chosen, policy, kept=False) for option in feasible[place + 1 :])
    return Decision(
        candidates=(first, *better, *others, *rejected),
        chosen=chosen,
        reason=_placed_reason(chosen),
        message=f"{chosen.pool.name}: {message}",
    )


def _compare(option: Option, chosen: Option, policy: PlacementPolicy, *, kept: bool) -> Candidate:
    reason, message = compare(option, chosen, policy, kept=kept)
    return Candidate(option.pool, Verdict.FEASIBLE, reason, message, option)


def _reject(pool: Pool, why: Rejection) -> Candidate:
    return Candidate(pool, Verdict.REJECTED, why.reason, why.message, why.option, why.shortage)


def _placed_reason(chosen: Option) -> Reason:
    if chosen.replicas == 0:
        return Reason.SCALED_TO_ZERO
    return Reason.POOL_CHOSEN if chosen.room >= chosen.replicas else Reason.INSUFFICIENT_GPUS


def _why_nothing(rejected: Sequence[Candidate]) -> tuple[Reason, str]:
    """The reason of condition Placed when no pool can take even one replica."""
    if not rejected:
        return Reason.NO_MATCHING_POOL, "the cluster has no pool of GPUs"
    for reason, causes, tell in _NEAREST:
        near = [found for found in rejected if found.reason in causes]
        if near:
            return reason, tell(near)
    pools = format_count(len(rejected), "pool")
    return Reason.NO_MATCHING_POOL, f"none of {pools} qualifies: {tell_reasons(rejected)}"


def _tell_waiting(waiting: Sequence[Candidate]) -> str:
    """What the best pool lacks, first those where only other pods are in the way."""
    best = waiting[0]
    if best.option is None or best.reason != RejectedReason.INSUFFICIENT_GPUS:
        return f"{best.pool.name}: {best.message}"
    return tell_need(best.option)


def _rejected_order(candidate: Candidate, policy: PlacementPolicy) -> tuple[object, ...]:
    """Listed by reason, those that would fit as they would rank, the nearest misses first."""
    place = nearness(candidate.reason)
    if candidate.option is not None:
        return (place, 0, rank(candidate.option, policy))
    shortage = candidate.shortage
    lacking = shortage.needed_bytes - shortage.available_bytes if shortage else 0
    return (place, 1, lacking, candidate.pool.name)


def _tell_each(what: str, candidates: Sequence[Candidate]) -> str:
    return f"{what}; {tell_pools(candidates)}"


_NEAREST: Final[Sequence[tuple[Reason, frozenset[RejectedReason], Tell]]] = (
    (
        Reason.INSUFFICIENT_GPUS,
        frozenset({RejectedReason.INSUFFICIENT_GPUS, RejectedReason.NO_USABLE_NODES}),
        _tell_waiting,
    ),
    (
        Reason.OVER_BUDGET,
        frozenset({RejectedReason.OVER_BUDGET, RejectedReason.NO_PRICE_KNOWN}),
        partial(_tell_each, "spec.placement.maxCostPerHour leaves no pool"),
    ),
    (
        Reason.TOO_SLOW,
        frozenset({RejectedReason.TOO_SLOW, RejectedReason.NO_ESTIMATE}),
        partial(_tell_each, "spec.workload.latencyTargets leave no pool"),
    ),
    (
        Reason.OUT_OF_MEMORY,
        frozenset({RejectedReason.FAILED_BEFORE}),
        partial(_tell_each, "no plan is left to try"),
    ),
    (
        Reason.DOES_NOT_FIT,
        frozenset(
            {
                RejectedReason.KV_CACHE_DOES_NOT_FIT,
                RejectedReason.OVERHEAD_DOES_NOT_FIT,
                RejectedReason.WEIGHTS_DO_NOT_FIT,
                RejectedReason.ILLEGAL_PARALLELISM,
            }
        ),
        partial(_tell_each, "fits on no pool"),
    ),
    (
        Reason.INCOMPATIBLE_PRECISION,
        frozenset({RejectedReason.INCOMPATIBLE}),
        partial(_tell_each, "runs on no pool"),
    ),
)
"""What stands against a choice, the nearest misses first: the reason of condition Placed, those of
the candidates behind it, and how these are told."""
