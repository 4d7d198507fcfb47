"""What a person approves, and whether a plan may be carried out (spec.approval: Manual).

Approved are terms: where replicas run, from which image and with which arguments. Terms that run
already need no approval, whatever they were approved by; so the plan in force is read off the
Deployment, and neither a new release of the operator nor a lost status asks anybody again.
"""

from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.inference import Approval
from tonnage.kube.protocol import Object
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.context import ReconcileContext
from tonnage.reconcile.outcome import PendingApproval, PlacementOutcome, Scheduled
from tonnage.reconcile.place import place
from tonnage.reconcile.proposal import Proposal, propose
from tonnage.reconcile.rollout import render
from tonnage.reconcile.serving import newest, pool_now
from tonnage.reconcile.terms import Terms, read_terms
from tonnage.render.names import placement_name


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """How an object stands with approval: the hash of the plan in force, and what waits.

    `held_back` are placements in addition to the first that go on as they are until a person has
    said yes to what they are to be.
    """

    plan: str | None = None
    proposal: Proposal | None = None
    held_back: frozenset[str] = frozenset()

    @property
    def is_proposed(self) -> bool:
        """Whether a plan waits for a person's word."""
        return self.proposal is not None


NOT_ASKED: Final = ApprovalState()
"""No person is asked to approve anything."""


@dataclass(frozen=True, slots=True)
class ApprovalCheck:
    """What a person has said yes to, for one object, and what runs by it."""

    context: ReconcileContext
    in_force: Terms | None

    def is_approved(self, placed: Scheduled) -> bool:
        """Whether the placement may be carried out."""
        return _is_approved(self.context, self._terms(placed), self.in_force)

    def state_of(self, outcome: PlacementOutcome, proposed: Scheduled | None) -> ApprovalState:
        """How the object stands when this is carried out, and that is proposed."""
        plan = self._terms(outcome) if isinstance(outcome, Scheduled) else self.in_force
        state = ApprovalState(plan.hash if plan else None)
        if proposed is None:
            return state
        proposal = propose(self.context, self._terms(proposed), proposed, self.in_force)
        return replace(state, proposal=proposal)

    def approve_secondary(
        self, placed: Scheduled, state: ApprovalState
    ) -> tuple[Scheduled, ApprovalState]:
        """The placement with only those in addition to it that may be carried out; the first of the
        others is proposed, if nothing else is, and what runs there goes on as it is."""
        approved, proposal, held_back = [], state.proposal, set()
        for share, alone in zip(placed.beside, placed.alone, strict=True):
            live, terms = self._live(alone), self._terms(alone)
            in_force = terms_of_live(self.context, live) if live else None
            may_change = _is_approved(self.context, terms, in_force)
            if may_change or live is not None:
                approved.append(share)
            if not may_change:
                held_back.add(placement_name(alone.option))
                proposal = proposal or propose(self.context, terms, alone, in_force, secondary=True)
        found = replace(state, proposal=proposal, held_back=frozenset(held_back))
        return replace(placed, beside=tuple(approved)), found

    def _terms(self, placed: Scheduled) -> Terms:
        return terms_of(placed, render(self.context, placed))

    def _live(self, placed: Scheduled) -> ChildDeployment | None:
        name, deployments = placement_name(placed.option), self.context.observation.deployments
        return next((one for one in deployments if one.placement == name), None)


def settle(context: ReconcileContext) -> tuple[PlacementOutcome, ApprovalState]:
    """Where the replicas belong, within what a person approved where one is to be asked, and what
    goes beyond it.

    A move by choice is proposed before it is the object's turn: its turn would pass while it waits.
    """
    if context.spec.approval is not Approval.MANUAL:
        return place(context), NOT_ASKED
    check = ApprovalCheck(context, terms_in_force(context))
    wanted = place(context)
    judged = [wanted]
    if not context.admission.may_move:
        judged.append(place(context.with_leave_to_move()))
    unapproved = (
        found for found in judged if isinstance(found, Scheduled) and not check.is_approved(found)
    )
    proposed = next(unapproved, None)
    if proposed is not None:
        wanted = place(context, bound=True)
    if not isinstance(wanted, Scheduled):
        return wanted, check.state_of(wanted, proposed)
    if not check.is_approved(wanted):
        waits = PendingApproval(wanted)
        return waits, check.state_of(waits, proposed)
    return check.approve_secondary(wanted, check.state_of(wanted, proposed))


def terms_of(placed: Scheduled, deployment: Object) -> Terms:
    """The terms of a placement and the Deployment that was rendered for it."""
    option = placed.option
    return read_terms(option.pool.name, option.accelerator.id, option.parallelism, deployment)


def terms_in_force(context: ReconcileContext) -> Terms | None:
    """The terms of the Deployment that the replicas were told to run on last; None without one."""
    current = newest(context.observation.deployments)
    return terms_of_live(context, current) if current else None


def terms_of_live(context: ReconcileContext, current: ChildDeployment) -> Terms:
    """The terms by which a Deployment runs.

    Its pool is the one that its nodes are in by now, whatever its name was then.
    """
    pods = context.observation.pods
    pool = pool_now(current, pods, context.shared_pools(), context.fleet)
    return read_terms(pool, current.accelerator, current.parallelism, current.child.body)


def _is_approved(context: ReconcileContext, terms: Terms, in_force: Terms | None) -> bool:
    """Whether the terms run already, or are those that a person said yes to."""
    return terms == in_force or terms.hash == context.spec.approved_plan
