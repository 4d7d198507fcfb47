"""What a person approves, and whether the operator may carry out a plan (spec.approval: Manual).

A person approves terms: where replicas run, from which image and with which arguments. Terms that
run already need no approval: the operator reads the plan in force from the Deployment, so neither
a new release of the operator nor a lost status asks for approval again.
"""

from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.inference import Approval
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.plan_terms import Terms, read_terms
from tonnage.reconcile.observation.serving import newest, pool_now
from tonnage.reconcile.observation.template_record import as_rendered, template_of
from tonnage.reconcile.rollout.approval.proposal import Proposal, propose
from tonnage.reconcile.rollout.strategy import render
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import PendingApproval, PlacementOutcome, Scheduled
from tonnage.reconcile.scheduling.place import place


@dataclass(frozen=True, slots=True)
class ApprovalState:
    """The hash of the plan in force, and the proposal that waits for approval.

    `held_back` are secondary placements that keep their terms until a person approves the new ones.
    """

    plan: str | None = None
    proposal: Proposal | None = None
    held_back: frozenset[str] = frozenset()

    @property
    def is_proposed(self) -> bool:
        """Whether a plan waits for approval."""
        return self.proposal is not None


NOT_ASKED: Final = ApprovalState()
"""No plan needs approval."""


@dataclass(frozen=True, slots=True)
class ApprovalCheck:
    """Checks placements of one object against the approved plan and the terms in force."""

    context: ReconcileContext
    in_force: Terms | None

    def is_approved(self, placed: Scheduled) -> bool:
        """Whether the operator may carry out the placement."""
        return _is_approved(self.context, self._terms(placed), self.in_force)

    def state_of(self, outcome: PlacementOutcome, proposed: Scheduled | None) -> ApprovalState:
        """The state when the operator carries out `outcome`, unless the rollout is paused, and
        proposes `proposed`."""
        terms = self.in_force
        if isinstance(outcome, Scheduled) and not self.context.spec.rollout.paused:
            terms = self._terms(outcome)
        state = ApprovalState(terms.hash if terms else None)
        if proposed is None:
            return state
        proposal = propose(self.context, self._terms(proposed), proposed, self.in_force)
        return replace(state, proposal=proposal)

    def approve_secondary(
        self, placed: Scheduled, state: ApprovalState
    ) -> tuple[Scheduled, ApprovalState]:
        """Keep the secondary placements that run or are approved; propose the first of the others
        unless there is a proposal already. What runs there keeps running."""
        approved, proposal, held_back = [], state.proposal, set()
        for share, secondary in zip(placed.secondary, placed.alone, strict=True):
            live, terms = self._find_live(secondary), self._terms(secondary)
            in_force = terms_of_live(self.context, live) if live else None
            may_change = _is_approved(self.context, terms, in_force)
            if may_change or live is not None:
                approved.append(share)
            if not may_change:
                held_back.add(secondary.option.placement_name)
                proposal = proposal or propose(
                    self.context, terms, secondary, in_force, secondary=True
                )
        state = replace(state, proposal=proposal, held_back=frozenset(held_back))
        return replace(placed, secondary=tuple(approved)), state

    def _terms(self, placed: Scheduled) -> Terms:
        return terms_of(placed, render(self.context, placed).body)

    def _find_live(self, placed: Scheduled) -> ChildDeployment | None:
        name, deployments = placed.option.placement_name, self.context.observation.deployments
        return next((live for live in deployments if live.placement == name), None)


def settle(context: ReconcileContext) -> tuple[PlacementOutcome, ApprovalState]:
    """Place the replicas within the approved plan, if approval is manual, and propose what exceeds
    it.

    The operator proposes a migration before the object's admission: the admission would pass while
    the proposal waits.
    """
    if context.spec.approval is not Approval.MANUAL:
        return place(context), NOT_ASKED
    check = ApprovalCheck(context, terms_in_force(context))
    outcome = place(context)
    outcomes = [outcome]
    if not context.admission.may_migrate:
        outcomes.append(place(context.with_migration_admitted()))
    unapproved = (
        placed
        for placed in outcomes
        if isinstance(placed, Scheduled) and not check.is_approved(placed)
    )
    proposed = next(unapproved, None)
    if proposed is not None:
        outcome = place(context, bound=True)
    if not isinstance(outcome, Scheduled):
        return outcome, check.state_of(outcome, proposed)
    if not check.is_approved(outcome):
        pending = PendingApproval(outcome)
        return pending, check.state_of(pending, proposed)
    return check.approve_secondary(outcome, check.state_of(outcome, proposed))


def terms_of(placed: Scheduled, deployment: Object) -> Terms:
    """The terms of a placement and the Deployment rendered for it."""
    option = placed.option
    template = template_of(deployment)
    return read_terms(option.pool.name, option.accelerator.id, option.parallelism, template)


def terms_in_force(context: ReconcileContext) -> Terms | None:
    """The terms of the newest Deployment; None without one."""
    current = newest(context.observation.deployments)
    return terms_of_live(context, current) if current else None


def terms_of_live(context: ReconcileContext, current: ChildDeployment) -> Terms:
    """The terms by which a Deployment runs; the pool is the one that its nodes are in now."""
    pods = context.observation.pods
    pool = pool_now(current, pods, context.shared_pools(), context.fleet)
    body = as_rendered(current.child.body)
    return read_terms(pool, current.accelerator, current.parallelism, template_of(body))


def _is_approved(context: ReconcileContext, terms: Terms, in_force: Terms | None) -> bool:
    """Whether the terms run already or are the approved ones."""
    return terms == in_force or terms.hash == context.spec.approved_plan
