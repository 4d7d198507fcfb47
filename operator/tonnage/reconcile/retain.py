"""When replicas stay on their pool, and what has to come about before they leave it.

Replicas leave a pool that can go on only where the user asked for that: for one that costs less by
so much (`placement.rebalance`), or to return to the pool they once had to leave
(`placement.fallback.back`). Either must have been so without a break for the stabilisation window.
Its beginning stands in status; a status that is lost lets the window begin anew, nothing more.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from tonnage.api.conditions import ConditionType
from tonnage.api.inference import (
    FallbackReturn,
    InferenceDeploymentSpec,
    PlacementSpec,
    RebalancePolicy,
)
from tonnage.api.parse import InvalidSpecError, parse_duration, parse_model
from tonnage.api.status import RebalanceStatus
from tonnage.fleet.model import Reservation
from tonnage.placement.model import Decision, Option, Verdict
from tonnage.placement.pricing import format_money
from tonnage.reconcile.children import ChildDeployment, ChildPod, parse_time
from tonnage.reconcile.move import Move, MoveReason
from tonnage.reconcile.observe import Observation

_LONGEST_WAIT_SECONDS: Final = 100 * 365 * 24 * 3600.0
"""A longer duration is as good as never; the calendar ends before the longest one."""


@dataclass(frozen=True, slots=True)
class Prospect:
    """A pool that the replicas move to at `moves_at` if it stays the better one until then.

    `at_rest`: all that their pool has room for serve, and there alone; nothing that is on its way
    is moved.
    """

    option: Option
    reason: MoveReason
    why: str
    since: datetime
    moves_at: datetime
    at_rest: bool

    def claim(self, owner: tuple[str, str]) -> Reservation:
        """What the move would take there."""
        option = self.option
        return Reservation(owner, "", option.pool.name, option.parallelism.gpus, option.replicas)


def find_prospect(
    observation: Observation,
    placement: PlacementSpec,
    decision: Decision,
    current: ChildDeployment,
    now: datetime,
) -> Prospect | None:
    """Where the replicas would go by choice, and since when that has been so."""
    chosen = decision.chosen
    if chosen is None or chosen.replicas == 0:
        return None
    others = [found for found in _with_room(decision, chosen) if found.pool.name != current.pool]
    found = _way_home(placement, others, current.moved) or _cheaper(placement, others, chosen)
    if found is None:
        return None
    option, reason, why = found
    since = max(_seen_since(observation, option.pool.name, reason) or now, current.since)
    window = wait_of(placement.rebalance.stabilization_window)
    alone = len(observation.deployments) == 1
    granted = min(chosen.replicas, chosen.room)
    at_rest = alone and current.serves(granted)
    return Prospect(option, reason, why, since, since + window, at_rest)


def find_relief(decision: Decision, current: ChildDeployment, *, running: bool) -> Option | None:
    """The best other pool with room for all replicas, of which the own has not for some; where
    none runs, one with room for some."""
    chosen = decision.chosen
    if chosen is None:
        return None
    options = _with_room(decision, chosen, some=not running)
    return next((found for found in options if found.pool.name != current.pool), None)


def move_away(current: ChildDeployment, why: str, to_pool: str, now: datetime) -> Move:
    """The move of replicas whose pool cannot hold them.

    Who falls back once more has still the first pool to return to; who comes to it is back.
    """
    before = current.moved
    if before is None or before.reason is not MoveReason.FELL_BACK:
        return Move(MoveReason.FELL_BACK, current.pool, now, why)
    if before.pool == to_pool:
        return Move(MoveReason.RETURNED, current.pool, now, why)
    return Move(MoveReason.FELL_BACK, before.pool, now, before.why)


def wait_of(duration: str) -> timedelta:
    """A duration of the spec as one that can be added to a time."""
    return timedelta(seconds=min(parse_duration(duration), _LONGEST_WAIT_SECONDS))


def scheduled(pods: Iterable[ChildPod], placement: str) -> list[ChildPod]:
    """Pods of the placement that hold GPUs of a node and are to stay."""
    return [pod for pod in pods if pod.placement == placement and pod.node and not pod.deleting]


def short_since(observation: Observation, current: ChildDeployment, now: datetime) -> datetime:
    """Since when replicas have waited for GPUs of their pool.

    A pod that waits tells it; where only as many pods were asked for as there was room, condition
    Placed does. A pod on its way out (its node may be lost, and its end never told) does not wait.
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
    """When the replicas were first said to have no place; now, if that is news."""
    for found in observation.previous_status.get("conditions") or []:
        if found.get("type") == ConditionType.PLACED and found.get("status") == "False":
            return parse_time(found["lastTransitionTime"])
    return now


def tell_way_back(spec: InferenceDeploymentSpec) -> str:
    """Whether replicas that fell back return, in a few words."""
    if spec.placement.fallback.back is FallbackReturn.NEVER:
        return "goes back: never (spec.placement.fallback.back)"
    window = spec.placement.rebalance.stabilization_window
    return f"goes back: once it has had room for all replicas for {window}"


def _with_room(decision: Decision, chosen: Option, *, some: bool = False) -> Iterator[Option]:
    """Options with room for all replicas now, or for `some`, best first; none that is avoided for
    a tight fit, unless the one at hand is."""
    for candidate in decision.candidates:
        option = candidate.option
        if candidate.verdict is Verdict.REJECTED or option is None:
            continue
        needed = 1 if some else option.replicas
        if option.room >= needed and (chosen.avoided or not option.avoided):
            yield option


def _way_home(
    placement: PlacementSpec, others: Iterable[Option], moved: Move | None
) -> tuple[Option, MoveReason, str] | None:
    if placement.fallback.back is FallbackReturn.NEVER:
        return None
    if moved is None or moved.reason is not MoveReason.FELL_BACK:
        return None
    home = next((found for found in others if found.pool.name == moved.pool), None)
    if home is None:
        return None
    why = f"{moved.pool} has room for all replicas again (spec.placement.fallback.back)"
    return home, MoveReason.RETURNED, why


def _cheaper(
    placement: PlacementSpec, others: Iterable[Option], chosen: Option
) -> tuple[Option, MoveReason, str] | None:
    """The cheapest of those that cost less by so much; of equal ones the best by the policy."""
    cost = chosen.compared_cost
    if placement.rebalance.policy is RebalancePolicy.NEVER or cost is None:
        return None
    priced = [(found.compared_cost, found) for found in others if found.compared_cost is not None]
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
    return best, MoveReason.REBALANCED, why


def _seen_since(observation: Observation, pool: str, reason: MoveReason) -> datetime | None:
    """Since when the status before has the same prospect for the same spec."""
    status = observation.previous_status
    if status.get("observedGeneration") != observation.generation:
        return None
    before = _read_rebalance(status.get("rebalance"))
    if before is None or (before.pool, before.reason) != (pool, reason.value):
        return None
    return read_time(before.since)


def read_time(text: str) -> datetime | None:
    """A time of our own status; one that somebody edited into nonsense counts as absent."""
    try:
        found = parse_time(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _read_rebalance(raw: Mapping[str, Any] | None) -> RebalanceStatus | None:
    try:
        return parse_model(RebalanceStatus, raw, "status.rebalance") if raw else None
    except InvalidSpecError:  # an older version wrote it otherwise
        return None
