"""Make condition Placed: whether every wanted replica has a pool with capacity, else why not."""

from dataclasses import replace
from datetime import datetime

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import Approval
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.findings import Finding, format_time
from tonnage.reconcile.observation.previous import Remembered
from tonnage.reconcile.rollout.approval.proposal import Proposal
from tonnage.reconcile.scheduling.holders import format_holders
from tonnage.reconcile.scheduling.outcome import (
    Pending,
    PendingApproval,
    Scheduled,
    Unschedulable,
    format_shares,
    format_shortage,
)
from tonnage.reconcile.status.status_input import StatusInput


def find_placed(inputs: StatusInput) -> Finding:
    """The finding, which also says who reserves the GPUs that are lacking."""
    placed = _find_placed(inputs)
    if placed.reason != Reason.INSUFFICIENT_GPUS or not inputs.holders:
        return placed
    return replace(placed, message=f"{placed.message}; {format_holders(inputs.holders)}")


def _find_placed(inputs: StatusInput) -> Finding:
    kind = ConditionType.PLACED
    if isinstance(inputs.accepted, Remembered):
        return inputs.accepted.placed
    match inputs.outcome:
        case None:
            message = "no pool was judged: the spec is not accepted"
            return Finding(kind, None, Reason.NOT_ACCEPTED, message)
        case Unschedulable() | Pending() if _requests_none(inputs):
            return Finding(kind, True, Reason.SCALED_TO_ZERO, _describe_zero(inputs))
        case Unschedulable(decision):
            return Finding(kind, False, decision.reason, decision.message)
        case PendingApproval():
            return Finding(kind, False, Reason.AWAITING_APPROVAL, str(inputs.approval.proposal))
        case Pending(_, current, why, until):
            message = f"pool {current.pool} cannot take the replicas: {why}"
            stays = "those that run there stay"
            otherwise = stays if until is None else describe_fallback(inputs, until)
            return _make_shortage(message, otherwise, inputs.approval.proposal)
        case Scheduled():
            return _find_scheduled(inputs, inputs.outcome)


def describe_fallback(inputs: StatusInput, at: datetime) -> str:
    """Name the time, not the seconds to it, which would change the status at every reconcile."""
    accepted = inputs.accepted
    manual = isinstance(accepted, Accepted) and accepted.spec.approval is Approval.MANUAL
    verb = "proposed" if manual else "taken"
    return f"another pool is {verb} at {format_time(at)} (spec.placement.fallback.after)"


def _make_shortage(message: str, otherwise: str, proposal: Proposal | None) -> Finding:
    """GPUs are lacking; with a proposal of another pool, the object waits for its approval."""
    kind = ConditionType.PLACED
    if proposal is not None:
        return Finding(kind, False, Reason.AWAITING_APPROVAL, f"{message}; {proposal}")
    return Finding(kind, False, Reason.INSUFFICIENT_GPUS, f"{message}; {otherwise}")


def _find_scheduled(inputs: StatusInput, placed: Scheduled) -> Finding:
    """Placed means free capacity now, without the nodes that an autoscaler may add."""
    message, option = format_shares(placed) or placed.decision.message, placed.option
    if option.replicas == 0:
        return Finding(ConditionType.PLACED, True, Reason.SCALED_TO_ZERO, _describe_zero(inputs))
    proposal = inputs.approval.proposal
    if placed.is_short:
        leaves = f"{describe_fallback(inputs, placed.leaves_at)}; " if placed.leaves_at else ""
        several = placed.secondary and not placed.silent
        have = "the pools have" if several else f"pool {option.pool.name} has"
        shortage = f"{have} {format_shortage(placed)}"
        return _make_shortage(shortage, f"{leaves}{message}", proposal)
    if proposal is not None:
        message = f"{message}; {proposal}"
    return Finding(ConditionType.PLACED, True, Reason.POOL_CHOSEN, message)


def _requests_none(inputs: StatusInput) -> bool:
    """Whether the user or the measured load requests zero replicas: then no pool is needed."""
    if not isinstance(inputs.accepted, Accepted):
        return False
    demanded = inputs.accepted.demanded
    return (inputs.accepted.spec.replicas if demanded is None else demanded.replicas) == 0


def _describe_zero(inputs: StatusInput) -> str:
    if isinstance(inputs.accepted, Accepted) and inputs.accepted.demanded is not None:
        return "no load: scaled to zero (spec.scaling.scaleToZero)"
    return "spec.replicas is 0: nothing is to be served"
