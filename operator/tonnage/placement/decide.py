"""Judges every pool, chooses one, and keeps every reason.

Algorithm. Each pool is judged on its own (`PoolJudge`). Where the replicas run on a pool with a
parallelism that still works, that option is chosen again even if another costs less. Otherwise the
best candidate with capacity is chosen (`ranking.rank`), and each other one is compared with it.
Capacity that a node autoscaler may add counts where no pool has any now, or always with
`spec.placement.preferGrowth`: pods that wait for it make it add nodes. Without a choice, the
nearest candidates decide the reason: GPUs that are not free, then CPU, memory or storage of the
nodes, then what the namespace allows, then the user's bounds on cost and latency, then GPU memory,
then compatibility, then that no pool qualified at all.
"""

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.placement import PlacementSpec
from tonnage.catalog.catalog import Catalog
from tonnage.fit.messages import format_count
from tonnage.fleet.model import Pool
from tonnage.placement.cache import PlacementCache
from tonnage.placement.engine_choice import judge_for
from tonnage.placement.judge import keeps_its_place
from tonnage.placement.messages import (
    format_choice,
    format_needed_gpus,
    format_pools,
    format_reasons,
    with_engine_reason,
)
from tonnage.placement.model import Candidate, Decision, Option, Rejection, Request, Verdict
from tonnage.placement.reasons import ChosenReason, RejectedReason, nearness
from tonnage.placement.scoring.compare import Ranked, compare, explain_choice
from tonnage.placement.scoring.ranking import rank

_NO_POOL: Final = (
    "the cluster has no node with GPUs and no AcceleratorPool; where a node autoscaler adds nodes,"
    " declare an AcceleratorPool with their labels in spec.nodeSelector, spec.accelerator and"
    " spec.maxNodes"
)

FormatCandidates = Callable[[Sequence[Candidate]], str]


def decide(
    request: Request, pools: Sequence[Pool], catalog: Catalog, cache: PlacementCache | None = None
) -> Decision:
    """Choose a pool for the request. Neither the order of the pools nor the content of the cache
    changes the decision.

    Raises fit.options.InvalidOptionError for invalid engine settings.
    """
    placement = request.spec.placement
    judge = judge_for(request, catalog, cache)
    verdicts = [(pool, judge.judge(pool)) for pool in pools]
    options = (verdict for _, verdict in verdicts if isinstance(verdict, Option))
    feasible = sorted(map(judge.rank, options), key=attrgetter("rank"))
    rejected = [
        _reject(pool, verdict) for pool, verdict in verdicts if isinstance(verdict, Rejection)
    ]
    rejected.sort(key=lambda candidate: _rejected_order(candidate, placement))
    if not feasible:
        reason, message = _why_none(rejected)
        return Decision(tuple(rejected), None, reason, message)
    kept = (index for index, one in enumerate(feasible) if keeps_its_place(request, one.option))
    return _choose(next(kept, 0), feasible, rejected, placement)


def _choose(
    index: int,
    feasible: Sequence[Ranked],
    rejected: Sequence[Candidate],
    placement: PlacementSpec,
) -> Decision:
    """Choose the option at this index; after better ones, it is only kept because it runs."""
    best, kept, policy = feasible[index], index > 0, placement.policy
    chosen = best.option
    reason = ChosenReason.KEEPS_ITS_PLACE if kept else ChosenReason(policy.value)
    why = "its replicas run there" if kept else explain_choice(best, feasible, placement)
    message = format_choice(chosen, why)
    first = Candidate(chosen.pool, Verdict.CHOSEN, reason, message, chosen)
    better = (_compare(each, best, placement, kept=True) for each in feasible[:index])
    others = (_compare(each, best, placement, kept=False) for each in feasible[index + 1 :])
    return Decision(
        candidates=(first, *better, *others, *rejected),
        chosen=chosen,
        reason=_placed_reason(chosen),
        message=f"{chosen.place}: {message}",
    )


def _compare(other: Ranked, best: Ranked, placement: PlacementSpec, *, kept: bool) -> Candidate:
    reason, message = compare(other, best, placement, kept=kept)
    option = other.option
    message = with_engine_reason(message, option)
    return Candidate(option.pool, Verdict.FEASIBLE, reason, message, option)


def _reject(pool: Pool, rejection: Rejection) -> Candidate:
    return Candidate(
        pool=pool,
        verdict=Verdict.REJECTED,
        reason=rejection.reason,
        message=rejection.message,
        option=rejection.option,
        shortage=rejection.shortage,
    )


def _placed_reason(chosen: Option) -> Reason:
    if chosen.replicas == 0:
        return Reason.SCALED_TO_ZERO
    return Reason.POOL_CHOSEN if chosen.capacity >= chosen.replicas else Reason.INSUFFICIENT_GPUS


def _why_none(rejected: Sequence[Candidate]) -> tuple[Reason, str]:
    """Return the reason and message of condition Placed when no pool can run even one replica."""
    if not rejected:
        return Reason.NO_MATCHING_POOL, _NO_POOL
    for reason, causes, format_candidates in _NEAREST:
        nearest = [candidate for candidate in rejected if candidate.reason in causes]
        if nearest:
            message = format_candidates(nearest)
            judged = [candidate for candidate in rejected if not _is_empty(candidate)]
            if judged and all(map(_is_empty, nearest)):
                message += f"; elsewhere: {_why_none(judged)[1]}"
            return reason, message
    pools = format_count(len(rejected), "pool")
    return Reason.NO_MATCHING_POOL, f"none of {pools} qualifies: {format_reasons(rejected)}"


def _is_empty(candidate: Candidate) -> bool:
    """Whether the pool has no node, and none of known GPUs to come: whether the model fits there
    is unknown, so it hides no cause of another pool."""
    return candidate.option is None and not candidate.pool.nodes


def _format_best(waiting: Sequence[Candidate]) -> str:
    """Format what the best pool lacks, first those where other pods hold the GPUs."""
    best = waiting[0]
    if best.option is None or best.reason != RejectedReason.INSUFFICIENT_GPUS:
        return f"{best.pool.name}: {best.message}"
    return format_needed_gpus(best.option)


def _rejected_order(candidate: Candidate, placement: PlacementSpec) -> tuple[object, ...]:
    """Return the sort key: by reason, then fitting options by rank, then the least shortage."""
    distance = nearness(candidate.reason)
    if candidate.option is not None:
        return (distance, 0, rank(candidate.option, placement))
    shortage = candidate.shortage
    lacking_bytes = shortage.needed_bytes - shortage.available_bytes if shortage else 0
    return (distance, 1, lacking_bytes, candidate.pool.name)


def _format_each(summary: str, candidates: Sequence[Candidate]) -> str:
    return f"{summary}; {format_pools(candidates)}"


def _format_once(candidates: Sequence[Candidate]) -> str:
    """Format a cause that is the same on every pool."""
    return f"runs on no pool; {candidates[0].message}"


_NEAREST: Final[Sequence[tuple[Reason, frozenset[RejectedReason], FormatCandidates]]] = (
    (
        Reason.INSUFFICIENT_GPUS,
        frozenset({RejectedReason.INSUFFICIENT_GPUS, RejectedReason.NO_USABLE_NODES}),
        _format_best,
    ),
    (
        Reason.INSUFFICIENT_RESOURCES,
        frozenset({RejectedReason.INSUFFICIENT_RESOURCES}),
        format_pools,
    ),
    (
        Reason.NO_MATCHING_NODES,
        frozenset({RejectedReason.NO_MATCHING_NODES}),
        format_pools,
    ),
    (
        Reason.QUOTA_EXCEEDED,
        frozenset({RejectedReason.QUOTA_EXCEEDED}),
        partial(_format_each, "the ResourceQuotas of the namespace leave no pool"),
    ),
    (
        Reason.LIMIT_RANGE_VIOLATED,
        frozenset({RejectedReason.LIMIT_RANGE_VIOLATED}),
        partial(_format_each, "the LimitRanges of the namespace leave no pool"),
    ),
    (
        Reason.POD_SECURITY_VIOLATED,
        frozenset({RejectedReason.POD_SECURITY_VIOLATED}),
        partial(_format_each, "the Pod Security Standard of the namespace leaves no pool"),
    ),
    (
        Reason.OVER_BUDGET,
        frozenset({RejectedReason.OVER_BUDGET, RejectedReason.NO_PRICE_KNOWN}),
        partial(_format_each, "spec.placement.maxCostPerHour leaves no pool"),
    ),
    (
        Reason.TOO_SLOW,
        frozenset({RejectedReason.TOO_SLOW, RejectedReason.NO_ESTIMATE}),
        partial(_format_each, "spec.workload.latencyTargets leave no pool"),
    ),
    (
        Reason.OUT_OF_MEMORY,
        frozenset({RejectedReason.FAILED_BEFORE}),
        partial(_format_each, "no plan is left to try"),
    ),
    (
        Reason.DOES_NOT_FIT,
        frozenset({RejectedReason.WORKLOAD_KIND_MISSING, RejectedReason.NO_INTERCONNECT}),
        partial(_format_each, "fits on no single node"),
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
        partial(_format_each, "fits on no pool"),
    ),
    (
        Reason.INCOMPATIBLE_PRECISION,
        frozenset({RejectedReason.INCOMPATIBLE}),
        partial(_format_each, "runs on no pool"),
    ),
    (
        Reason.UNSUPPORTED_ARCHITECTURE,
        frozenset({RejectedReason.UNSUPPORTED_ARCHITECTURE}),
        _format_once,
    ),
)
"""Causes of no choice, the nearest misses first: the reason of condition Placed, the candidates'
reasons behind it, and the function that formats these candidates."""
