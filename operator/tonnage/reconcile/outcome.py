"""Where the replicas belong, as it was settled, or why nothing is done about that now."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.fleet.model import Reservation
from tonnage.placement.messages import format_count, format_split
from tonnage.placement.model import Decision, Option
from tonnage.placement.spread import Share, lacking, work_of
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.move import Move
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.retain import Prospect
from tonnage.reconcile.turn import LACKS_CAPACITY
from tonnage.render.names import placement_name

_NAMED_NODES: Final = 3


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The replicas belong on `option`; `granted` of them have GPUs there, or nodes to come.

    What it does not carry is `beside` it. `moved` is how they came there from another pool,
    `prospect` where they would go by choice, and `leaves_at` when another pool takes them because
    this one is short of GPUs. `silent` are nodes that replicas are on, that nobody hears of, and
    that the pool has no other room for.
    """

    decision: Decision
    option: Option
    granted: int
    moved: Move | None = None
    prospect: Prospect | None = None
    leaves_at: datetime | None = None
    silent: tuple[str, ...] = ()
    beside: tuple[Share, ...] = ()

    @property
    def is_short(self) -> bool:
        """Whether there is room for some of the replicas only, on nodes that answer."""
        return self.lacking > 0 or bool(self.silent)

    @property
    def lacking(self) -> int:
        """Replicas like those of `option` that there is no room for now, there or beside."""
        if not self.beside:
            return max(0, self.option.replicas - self.option.room)
        return ceil(lacking(self.shares) / work_of(self.option))

    @property
    def wanted(self) -> int:
        """Replicas that there are to be, wherever they run."""
        if not self.beside:
            return self.option.replicas
        return sum(share.replicas for share in self.shares) + self.lacking

    @property
    def shares(self) -> tuple[Share, ...]:
        """The replicas that have room, by pool."""
        return (Share(self.option, min(self.granted, self.option.room)), *self.beside)

    @property
    def alone(self) -> "tuple[Scheduled, ...]":
        """What is beside, each share as a placement of its own."""
        return tuple(Scheduled(self.decision, one.alone, one.replicas) for one in self.beside)


@dataclass(frozen=True, slots=True)
class Pending:
    """The replicas wait for their pool, which cannot take them now and says why.

    Another pool is taken at `until`; None: those that run there stay.
    """

    decision: Decision
    current: ChildDeployment
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Unschedulable:
    """No pool can carry even one replica; the decision says why."""

    decision: Decision


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """What was decided waits for a person, and nothing of it can be done before; what runs goes
    on as it is."""

    placed: Scheduled

    @property
    def decision(self) -> Decision:
        """Every pool judged."""
        return self.placed.decision


PlacementOutcome = Scheduled | Pending | Unschedulable | PendingApproval
"""Where the replicas belong, or why nothing is done about that now."""


def find_claims(
    outcome: PlacementOutcome, observation: Observation, *, proposed: bool
) -> tuple[Reservation, ...]:
    """What the object would take if there were capacity, which objects after it leave alone.

    `proposed`: a person can have another plan carried out, and the object waits for that word. An
    object that waits to leave its pool claims nothing, and so does one that fits nowhere.
    """
    owner = observation.owner
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
    """The replicas that the pool has no capacity for yet. A placement that shared the work, and has
    to leave, carries its replicas until others serve in their stead: these are claimed nowhere."""
    option, names = placed.option, {placement_name(one.option) for one in placed.shares}
    shared = {one.name for one in observation.reported_placements if one.weight}
    leaving = (
        found.wanted for found in observation.deployments if found.placement in shared - names
    )
    carried = placed.granted + sum(share.replicas for share in placed.beside) + sum(leaving)
    missing = placed.wanted - carried
    if missing <= 0:
        return ()
    name, gpus = placement_name(option), option.parallelism.gpus
    return (Reservation(observation.owner, name, option.pool.name, gpus, missing),)


def _claim_anywhere(decision: Decision, owner: tuple[str, str]) -> tuple[Reservation, ...]:
    """All replicas, on each pool that only lacks the GPUs for them."""
    return tuple(
        Reservation(owner, "", option.pool.name, option.parallelism.gpus, option.replicas)
        for candidate in decision.candidates
        if (option := candidate.option) is not None
        and candidate.reason in LACKS_CAPACITY
        and option.replicas
    )


def format_shortage(placed: Scheduled) -> str:
    """What a pool has that is short of GPUs, in a few words."""
    if placed.silent:
        named = ", ".join(placed.silent[:_NAMED_NODES])
        others = len(placed.silent) - _NAMED_NODES
        more = f" and {others} more" if others > 0 else ""
        return f"replicas on nodes that do not answer ({named}{more})"
    wanted = placed.wanted
    return f"room for {wanted - placed.lacking} of {wanted} replicas"


def format_shares(placed: Scheduled) -> str:
    """Where the replicas run, where several pools carry them; empty for one."""
    if not placed.beside:
        return ""
    told = (
        f"{format_count(one.replicas, 'replica')} on {one.option.pool.name}"
        f" ({one.option.accelerator.id}, {format_split(one.option.parallelism)},"
        f" {one.weight_of(placed.shares)} % of the work)"
        for one in placed.shares
    )
    return f"{', '.join(told)} (spec.placement.spread)"
