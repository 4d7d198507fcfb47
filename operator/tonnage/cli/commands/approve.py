"""`kubectl tonnage approve NAME`: approve the pending plan."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from rich.markup import escape

from tonnage.api.inference import Approval
from tonnage.api.status import ProposedPlan
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import make_console, print_line
from tonnage.cli.spec_change import GITOPS, LiveObject, add_object_arguments, change_spec
from tonnage.fit.messages import format_count, format_parallelism
from tonnage.placement.report import read_parallelism

_EPILOG: Final = f"""\
examples:
  kubectl tonnage approve llama-70b -n chat
  kubectl tonnage approve llama-70b -n chat --plan 9c1e4b7a20d35f68    # only this plan

{GITOPS}
exit codes: 0 approved, 2 no plan or another plan waits, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the object and the plan to approve."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG
    parser.add_argument(
        "--plan", metavar="HASH", help="approve this plan only (default: the one that waits)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the hash of the pending plan into the spec, and print the plan."""

    def make_patch(live: LiveObject) -> Mapping[str, Any]:
        return {"approvedPlan": _get_pending_plan(live, options.plan).hash}

    live = change_spec(options, make_patch)
    approved = _format_plan(_get_pending_plan(live, options.plan))
    print_line(make_console(), escape(f"{live.key}: approved {approved}"))
    return ExitCode.DONE


def _get_pending_plan(live: LiveObject, expected_hash: str | None) -> ProposedPlan:
    """The plan to approve. Raises InputError."""
    status = live.status
    if status.observed_generation != live.generation:
        reported = status.observed_generation or "none"
        raise InputError(
            f"{live.key} is at generation {live.generation}, and the operator has reported on"
            f" {reported}: retry when the operator has reported on {live.generation}"
        )
    plan = status.proposed_plan
    if plan is None and live.spec.approval is Approval.AUTOMATIC:
        raise InputError(
            f"{live.key}: no plan waits: spec.approval is Automatic, so each is carried out"
        )
    if plan is None:
        hint = f"plan {status.plan} runs" if status.plan else "see `kubectl tonnage explain`"
        raise InputError(f"{live.key}: no plan waits for approval; {hint}")
    if expected_hash not in (None, plan.hash):
        raise InputError(
            f"{live.key}: plan {expected_hash} does not wait for approval, {plan.hash} does:"
            f" {plan.message}"
        )
    return plan


def _format_plan(plan: ProposedPlan) -> str:
    split = format_parallelism(read_parallelism(plan))
    cost = f", {plan.cost_per_hour}/h" if plan.cost_per_hour else ""
    return (
        f"plan {plan.hash}: {format_count(plan.replicas, 'replica')} on pool {plan.pool}"
        f" ({plan.accelerator}, {split}) from {plan.image}{cost}"
    )
