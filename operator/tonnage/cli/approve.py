"""`kubectl tonnage approve NAME`: say yes to the plan that waits."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from rich.markup import escape

from tonnage.api.inference import Approval
from tonnage.api.status import ProposedPlan
from tonnage.cli.changing import GITOPS, Found, add_object_arguments, change_spec
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import make_console
from tonnage.fit.model import Parallelism
from tonnage.placement.messages import format_count, format_split

_EPILOG: Final = f"""\
examples:
  kubectl tonnage approve llama-70b -n chat
  kubectl tonnage approve llama-70b -n chat --plan 9c1e4b7a20d35f68    # this one and no other

{GITOPS}
exit codes: 0 approved, 2 nothing waits, another plan waits, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The object, and which plan."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG
    parser.add_argument(
        "--plan", metavar="HASH", help="approve this plan only (default: the one that waits)"
    )


def run(options: argparse.Namespace) -> int:
    """Write the hash of what waits into the spec, and print what that is."""

    def decide(found: Found) -> Mapping[str, Any]:
        return {"approvedPlan": _what_waits(found, options.plan).hash}

    found = change_spec(options, decide)
    told = _tell(_what_waits(found, options.plan))
    make_console().print(escape(f"{found.key}: approved {told}"), soft_wrap=True)
    return ExitCode.DONE


def _what_waits(found: Found, wanted: str | None) -> ProposedPlan:
    """The plan that is approved. Raises InputError."""
    status = found.status
    if status.observed_generation != found.generation:
        reported = status.observed_generation or "none"
        raise InputError(
            f"{found.key} is at generation {found.generation}, and the operator has reported on"
            f" {reported}: run it again when it has"
        )
    plan = status.proposed_plan
    if plan is None and found.spec.approval is Approval.AUTOMATIC:
        raise InputError(
            f"{found.key}: no plan waits: spec.approval is Automatic, so each is carried out"
        )
    if plan is None:
        runs = f"plan {status.plan} runs" if status.plan else "see `kubectl tonnage explain`"
        raise InputError(f"{found.key}: no plan waits for approval; {runs}")
    if wanted not in (None, plan.hash):
        raise InputError(
            f"{found.key}: plan {wanted} does not wait for approval, {plan.hash} does:"
            f" {plan.message}"
        )
    return plan


def _tell(plan: ProposedPlan) -> str:
    split = format_split(Parallelism(plan.tensor_parallel_size, plan.pipeline_parallel_size))
    cost = f", {plan.cost_per_hour}/h" if plan.cost_per_hour else ""
    return (
        f"plan {plan.hash}: {format_count(plan.replicas, 'replica')} on pool {plan.pool}"
        f" ({plan.accelerator}, {split}) from {plan.image}{cost}"
    )
