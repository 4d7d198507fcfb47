"""Which of an object's plans is carried out, and which waits for a person (approval: Manual)."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.kube.protocol import Object
from tonnage.reconcile.approval import Standing, is_approved, terms_of
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import (
    Pending,
    PendingApproval,
    PlacementOutcome,
    Scheduled,
    Unschedulable,
)
from tonnage.reconcile.proposal import propose
from tonnage.reconcile.terms import Terms
from tonnage.reconcile.turn import Turn
from tonnage.render.names import placement_name


class Settle(Protocol):
    """Where the replicas belong, as `place` says it."""

    def __call__(self, turn: Turn, *, bound: bool = False) -> Scheduled | Pending | Unschedulable:
        """With what the others leave; `bound`: without leaving a pool that the spec leads to."""
        ...


@dataclass(frozen=True, slots=True)
class Gate:
    """What a person has said yes to, for one object, and what runs by it."""

    observation: Observation
    spec: InferenceDeploymentSpec
    in_force: Terms | None
    render: Callable[[Scheduled], Object]
    read_live: Callable[[ChildDeployment], Terms]

    def terms(self, placed: Scheduled) -> Terms:
        """What would be carried out."""
        return terms_of(placed, self.render(placed))

    def admits(self, placed: Scheduled) -> bool:
        """Whether it may be."""
        return is_approved(self.terms(placed), self.spec, self.in_force)

    def stand(self, plan: Terms | None, proposed: Scheduled | None) -> Standing:
        """How the object stands with this plan in force and that one proposed."""
        standing = Standing(plan.hash if plan else None)
        if proposed is None:
            return standing
        terms = self.terms(proposed)
        proposal = propose(self.observation, self.spec, terms, proposed, self.in_force)
        return replace(standing, proposal=proposal)

    def admit_beside(self, placed: Scheduled, standing: Standing) -> tuple[Scheduled, Standing]:
        """The placement with only those beside it that may be; the first of the others is proposed,
        if nothing else is, and what runs there goes on as it is."""
        admitted, proposal, held_back = [], standing.proposal, set()
        for share, alone in zip(placed.beside, placed.alone, strict=True):
            live = self._live(alone)
            terms, in_force = self.terms(alone), self.read_live(live) if live else None
            approved = is_approved(terms, self.spec, in_force)
            if approved or live is not None:
                admitted.append(share)
            if not approved:
                held_back.add(placement_name(alone.option))
                proposal = proposal or propose(
                    self.observation, self.spec, terms, alone, in_force, beside=True
                )
        found = replace(standing, proposal=proposal, held_back=frozenset(held_back))
        return replace(placed, beside=tuple(admitted)), found

    def _live(self, placed: Scheduled) -> ChildDeployment | None:
        name = placement_name(placed.option)
        return next((one for one in self.observation.deployments if one.placement == name), None)


def settle_as_approved(gate: Gate, settle: Settle, turn: Turn) -> tuple[PlacementOutcome, Standing]:
    """Where the replicas belong within what is approved, and what goes beyond it.

    A move by choice is proposed before it is the object's turn: its turn would pass while it waits.
    """
    wanted = settle(turn)
    judged = (wanted,) if turn.may_move else (wanted, settle(replace(turn, may_move=True)))
    beyond = (found for found in judged if isinstance(found, Scheduled) and not gate.admits(found))
    proposed = next(beyond, None)
    if proposed is not None:
        wanted = settle(turn, bound=True)
    if not isinstance(wanted, Scheduled):
        return wanted, gate.stand(gate.in_force, proposed)
    if not gate.admits(wanted):
        return PendingApproval(wanted), gate.stand(gate.in_force, proposed)
    return gate.admit_beside(wanted, gate.stand(gate.terms(wanted), proposed))
