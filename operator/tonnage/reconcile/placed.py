"""Where the replicas belong, as it was settled, or why nothing is done about that now."""

from dataclasses import dataclass
from datetime import datetime
from math import ceil
from typing import Final

from tonnage.placement.messages import format_count, format_split
from tonnage.placement.model import Decision, Option
from tonnage.placement.spread import Share, lacking, work_of
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.move import Move
from tonnage.reconcile.retain import Prospect

_NAMED_NODES: Final = 3


@dataclass(frozen=True, slots=True)
class Placed:
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
    def alone(self) -> "tuple[Placed, ...]":
        """What is beside, each share as a placement of its own."""
        return tuple(Placed(self.decision, one.alone, one.replicas) for one in self.beside)


@dataclass(frozen=True, slots=True)
class Held:
    """The replicas wait for their pool, which cannot take them now and says why.

    Another pool is taken at `until`; None: those that run there stay.
    """

    decision: Decision
    current: ChildDeployment
    why: str
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Unplaced:
    """No pool can carry even one replica; the decision says why."""

    decision: Decision


def tell_short(placed: Placed) -> str:
    """What a pool has that is short of GPUs, in a few words."""
    if placed.silent:
        named = ", ".join(placed.silent[:_NAMED_NODES])
        others = len(placed.silent) - _NAMED_NODES
        more = f" and {others} more" if others > 0 else ""
        return f"replicas on nodes that do not answer ({named}{more})"
    wanted = placed.wanted
    return f"room for {wanted - placed.lacking} of {wanted} replicas"


def tell_shares(placed: Placed) -> str:
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
