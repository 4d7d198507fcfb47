"""Decide when replicas stay on their pool, and which conditions let them leave it.

Replicas leave a pool that can go on only where the user asked for that: for a pool that is cheaper
by a given percentage (`placement.rebalance`), or to return to the pool that they once had to leave
(`placement.fallback.back`). Either condition must have held without a break for the stabilisation
window. The status stores when the window began; losing the status only restarts the window.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tonnage.api.conditions import ConditionType
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import parse_duration
from tonnage.api.placement import FallbackReturn, PlacementSpec, RebalancePolicy
from tonnage.api.status import RebalanceStatus
from tonnage.catalog.prices import format_money
from tonnage.fleet.model import Reservation
from tonnage.placement.model import Decision, Option, Verdict
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.migration import Migration, MigrationReason
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.previous import read_reported, read_since, read_time

_LONGEST_WAIT_SECONDS: Final = 100 * 365 * 24 * 3600.0
"""A longer duration counts as never; `datetime` ends before the longest one."""


@dataclass(frozen=True, slots=True)
class PlannedMigration:
    """A pool that the replicas migrate to at `moves_at` if it stays the better one until then.

    `converged`: the replicas that fit in their pool all serve, and only there; a rollout in
    progress is never migrated.
    """

    option: Option
    reason: MigrationReason
    why: str
    since: datetime
    moves_at: datetime
    converged: bool

    def claim(self, owner: tuple[str, str]) -> Reservation | None:
        """What the migration would take in the target pool now; None where the pool has to grow for
        it."""
        option = self.option
        if option.capacity < option.replicas:
            return None
        footprint = option.parallelism.footprint
        return Reservation(owner, "", option.pool.name, footprint, option.replicas)


def plan_migration(
    observation: Observation,
    placement: PlacementSpec,
    decision: Decision,
    current: ChildDeployment,
    now: datetime,
) -> PlannedMigration | None:
    """Where the replicas would go by choice, and since when that has been so. They keep their
    engine."""
    chosen = decision.chosen
    if chosen is None or chosen.replicas == 0:
        return None
    others = [
        option
        for option in _options_with_capacity(decision, chosen)
        if option.pool.name != current.pool and option.engine == chosen.engine
    ]
    target = _find_return(placement, others, current.last_migration)
    if target is None:
        growing = (
            option
            for option in _growing_options(placement, decision, current)
            if option.engine == chosen.engine
        )
        target = _find_cheaper(placement, (*others, *growing), chosen)
    if target is None:
        return None
    option, reason, why = target
    since = max(_read_since(observation, option.pool.name, reason) or now, current.since)
    window = wait_of(placement.rebalance.stabilization_window)
    only_one = len(observation.deployments) == 1
    granted = min(chosen.replicas, chosen.capacity)
    converged = only_one and current.serves(granted)
    return PlannedMigration(option, reason, why, since, since + window, converged)


def find_fallback_target(
    decision: Decision, current: ChildDeployment, *, running: bool
) -> Option | None:
    """The best other pool with capacity for all replicas, where the current pool lacks some; with
    no replica running, one with capacity for some."""
    chosen = decision.chosen
    if chosen is None:
        return None
    options = _options_with_capacity(decision, chosen, some=not running)
    return next((option for option in options if option.pool.name != current.pool), None)


def make_fallback_migration(
    current: ChildDeployment, why: str, to_pool: str, now: datetime
) -> Migration:
    """The move of replicas whose pool cannot hold them.

    After a second fallback the replicas still return to the first pool; a fallback to that pool is
    a return.
    """
    previous = current.last_migration
    if previous is None or previous.reason is not MigrationReason.FELL_BACK:
        return Migration(MigrationReason.FELL_BACK, current.pool, now, why)
    if previous.pool == to_pool:
        return Migration(MigrationReason.RETURNED, current.pool, now, why)
    return Migration(MigrationReason.FELL_BACK, previous.pool, now, previous.why)


def wait_of(duration: str) -> timedelta:
    """Parse a duration of the spec into one that can be added to a time."""
    return timedelta(seconds=min(parse_duration(duration), _LONGEST_WAIT_SECONDS))


def short_since(observation: Observation, current: ChildDeployment, now: datetime) -> datetime:
    """Since when replicas have waited for GPUs of their pool.

    Pods that wait say when they were created; where only as many pods were created as had capacity,
    condition Placed says it. A pod that is being deleted does not wait: its node may be lost, and
    no event may ever report its end.
    """
    waiting = [
        pod.created
        for pod in observation.pods
        if pod.placement == current.placement and not pod.node and not pod.deleting
    ]
    if waiting:
        return min(waiting)
    return max(unplaced_since(observation, now), current.since)


def unplaced_since(observation: Observation, now: datetime) -> datetime:
    """When condition Placed became False; `now` if it is not False yet."""
    return read_since(observation.previous_status, ConditionType.PLACED, "False") or now


def format_return(spec: InferenceDeploymentSpec) -> str:
    """Whether replicas that fell back return, as a phrase."""
    if spec.placement.fallback.back is FallbackReturn.NEVER:
        return "returns: never (spec.placement.fallback.back)"
    window = spec.placement.rebalance.stabilization_window
    return f"returns: after it has had capacity for all replicas for {window}"


def _options_with_capacity(
    decision: Decision, chosen: Option, *, some: bool = False, after_growth: bool = False
) -> Iterator[Option]:
    """Options with capacity for all replicas, or for `some`, now or also after growth, best first;
    without riskier options than `chosen`."""
    for candidate in decision.candidates:
        option = candidate.option
        if candidate.verdict is Verdict.REJECTED or option is None:
            continue
        needed = 1 if some else option.replicas
        capacity = option.grown_capacity if after_growth else option.capacity
        if capacity >= needed and not _is_riskier(option, chosen):
            yield option


def _growing_options(
    placement: PlacementSpec, decision: Decision, current: ChildDeployment
) -> Iterator[Option]:
    """Options on other pools that have capacity for all replicas only after growth, where the user
    prefers that. A pool whose nodes did not come, so that the replicas fell back, is none."""
    chosen, last = decision.chosen, current.last_migration
    if chosen is None or not placement.prefer_growth:
        return
    fell_back = last is not None and last.reason is MigrationReason.FELL_BACK
    left = {current.pool, last.pool} if last is not None and fell_back else {current.pool}
    for option in _options_with_capacity(decision, chosen, after_growth=True):
        if option.pool.name not in left and option.capacity < option.replicas:
            yield option


def _is_riskier(option: Option, chosen: Option) -> bool:
    """Whether replicas had better wait than leave the chosen option for this one: it fits tightly,
    or it is not verified for the model and some replicas can run on the chosen one."""
    unverified = bool(option.unverified) and not chosen.unverified and chosen.capacity > 0
    return unverified or (option.avoided and not chosen.avoided)


def _find_return(
    placement: PlacementSpec, others: Iterable[Option], last_migration: Migration | None
) -> tuple[Option, MigrationReason, str] | None:
    if placement.fallback.back is FallbackReturn.NEVER:
        return None
    if last_migration is None or last_migration.reason is not MigrationReason.FELL_BACK:
        return None
    target = next((option for option in others if option.pool.name == last_migration.pool), None)
    if target is None:
        return None
    why = (
        f"{last_migration.pool} has capacity for all replicas again (spec.placement.fallback.back)"
    )
    return target, MigrationReason.RETURNED, why


def _find_cheaper(
    placement: PlacementSpec, others: Iterable[Option], chosen: Option
) -> tuple[Option, MigrationReason, str] | None:
    """The cheapest option that is cheaper by the required percentage; of equal ones the best by the
    policy."""
    cost = chosen.compared_cost
    if placement.rebalance.policy is RebalancePolicy.NEVER or cost is None:
        return None
    priced = [(one.compared_cost, one) for one in others if one.compared_cost is not None]
    if not priced:
        return None
    best_cost, best = min(priced, key=lambda pair: pair[0])
    percent = placement.rebalance.percent
    if best_cost * 100 > cost * (100 - percent):
        return None
    why = (
        f"{best.pool.name} costs {format_money(best_cost)}/h, {chosen.pool.name}"
        f" {format_money(cost)}/h: at least {percent} % less (spec.placement.rebalance)"
    )
    return best, MigrationReason.REBALANCED, why


def _read_since(observation: Observation, pool: str, reason: MigrationReason) -> datetime | None:
    """Since when the previous status has this migration for the same spec."""
    status = observation.previous_status
    if status.get("observedGeneration") != observation.generation:
        return None
    previous = read_reported(RebalanceStatus, status.get("rebalance"))
    if previous is None or (previous.pool, previous.reason) != (pool, reason.value):
        return None
    return read_time(previous.since)


def waits_to_return(spec: InferenceDeploymentSpec, migration: Migration | None) -> bool:
    """Whether the replicas wait for capacity in the pool that they had to leave."""
    fell_back = migration is not None and migration.reason is MigrationReason.FELL_BACK
    return fell_back and spec.placement.fallback.back is not FallbackReturn.NEVER
