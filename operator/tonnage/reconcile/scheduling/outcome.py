"""The outcome of placing: where the replicas belong, or why they are not placed now."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.fit.messages import format_count, format_parallelism
from tonnage.fleet.model import Reservation
from tonnage.placement.model import Decision, Option
from tonnage.placement.spread import Share, missing_work, work_of
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.migration import Migration
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.scheduling.admission import LACKS_CAPACITY
from tonnage.reconcile.scheduling.retain import PlannedMigration

_NAMED_NODES: Final = 3


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The replicas belong on `option`; `granted` of them have GPUs there, or nodes to come.

    The `secondary` shares carry the rest. `last_migration` is how the replicas came from another
    pool, `migration` where they would go by choice, and `leaves_at` when another pool takes them
    because this one is short of GPUs or they do not come up. `silent` are nodes with replicas whose
    kubelet does not answer, and for which the pool has no other capacity.
    """

    decision: Decision
    option: Option
    granted: int
    last_migration: Migration | None = None
    migration: PlannedMigration | None = None
    leaves_at: datetime | None = None
    silent: tuple[str, ...] = ()
    secondary: tuple[Share, ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether only some of the replicas have capacity on nodes that answer."""
        return self.missing_replicas > 0 or bool(self.silent)

    @property
    def missing_replicas(self) -> int:
        """Replicas like those of `option` that have no capacity now, there or on other pools."""
        if not self.secondary:
            return max(0, self.option.replicas - self.option.capacity)
        return ceil(missing_work(self.shares) / work_of(self.option))

    @property
    def moves_at(self) -> datetime | None:
        """When the replicas go to another pool by choice; None where they stay."""
        return self.migration.moves_at if self.migration else None

    @property
    def wanted(self) -> int:
        """Replicas that are to run, on whatever pool."""
        if not self.secondary:
            return self.option.replicas
        return sum(share.replicas for share in self.shares) + self.missing_replicas

    @property
    def shares(self) -> tuple[Share, ...]:
        """The replicas that have capacity, by pool."""
        return (Share(self.option, min(self.granted, self.option.capacity)), *self.secondary)

    @property
    def alone(self) -> "tuple[Scheduled, ...]":
        """Each secondary share as a placement of its own."""
        return tuple(
            Scheduled(self.decision, share.alone, share.replicas) for share in self.secondary
        )


@dataclass(frozen=True, slots=True)
class Pending:
    """The replicas wait for their pool, which cannot take them now; `why` is its verdict.

    Another pool is taken at `until`; None: running replicas stay.
    """

    decision: Decision
    current: ChildDeployment
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No pool can run even one replica; the decision has the reasons."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """The decision waits for a person, and nothing of it can be carried out before; running
    replicas go on as they are."""

    placed: Scheduled

    @property
    def decision(self) -> Decision:
        """The verdict on every pool."""
        return self.placed.decision


PlacementOutcome = Scheduled | Pending | Unschedulable | PendingApproval
"""Where the replicas belong, or why they are not placed now."""


def find_claims(
    outcome: PlacementOutcome, observation: Observation, *, proposed: bool
) -> tuple[Reservation, ...]:
    """What the object would take if there were capacity, which later objects leave free.

    `proposed`: the object waits for a person, who can approve another plan. An object that waits to
    leave its pool claims nothing, and so does one that fits nowhere.
    """
    owner = observation.key
    match outcome:
        case Scheduled() if outcome.is_short and not proposed:
            return _claim_rest(outcome, observation)
        case Pending() if outcome.decision.chosen is None and not proposed:
            return _claim_anywhere(outcome.decision, owner)
        case Unschedulable() if outcome.decision.reason == Reason.INSUFFICIENT_GPUS:
            return _claim_anywhere(outcome.decision, owner)
        case _:
            return ()


def _claim_rest(placed: Scheduled, observation: Observation) -> tuple[Reservation, ...]:
    """The replicas that the pool has no capacity for yet. A placement that shared the work and is
    to be drained carries its replicas until others serve in their stead: these are claimed
    nowhere."""
    option, names = placed.option, {share.option.placement_name for share in placed.shares}
    shared = {reported.name for reported in observation.reported_placements if reported.weight}
    draining = (
        deployment.wanted
        for deployment in observation.deployments
        if deployment.placement in shared - names
    )
    carried = placed.granted + sum(share.replicas for share in placed.secondary) + sum(draining)
    missing = placed.wanted - carried
    if missing <= 0:
        return ()
    name, footprint = option.placement_name, option.parallelism.footprint
    return (Reservation(observation.key, name, option.pool.name, footprint, missing),)


def _claim_anywhere(decision: Decision, owner: tuple[str, str]) -> tuple[Reservation, ...]:
    """All replicas, on each pool that only lacks the GPUs for them."""
    return tuple(
        Reservation(owner, "", option.pool.name, option.parallelism.footprint, option.replicas)
        for candidate in decision.candidates
        if (option := candidate.option) is not None
        and candidate.reason in LACKS_CAPACITY
        and option.replicas
    )


def format_shortage(placed: Scheduled) -> str:
    """What a pool that is short of GPUs has, as a phrase."""
    if placed.silent:
        names = ", ".join(placed.silent[:_NAMED_NODES])
        others = len(placed.silent) - _NAMED_NODES
        more = f" and {others} more" if others > 0 else ""
        return f"replicas on nodes that do not answer ({names}{more})"
    wanted = placed.wanted
    return f"capacity for {wanted - placed.missing_replicas} of {wanted} replicas"


def format_shares(placed: Scheduled) -> str:
    """Where the replicas run, where several pools carry them; empty for one pool."""
    if not placed.secondary:
        return ""
    shares = (
        f"{format_count(share.replicas, 'replica')} on {share.option.pool.name}"
        f" ({share.option.accelerator.id}, {format_parallelism(share.option.parallelism)},"
        f" {share.weight_of(placed.shares)} % of the work)"
        for share in placed.shares
    )
    return f"{', '.join(shares)} (spec.placement.spread)"
