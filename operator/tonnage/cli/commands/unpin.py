"""`kubectl tonnage unpin NAME`: let the operator carry out plans without approval again."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from rich.markup import escape

from tonnage.api.inference import Approval
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import make_console, print_line
from tonnage.cli.spec_change import GITOPS, LiveObject, add_object_arguments, change_spec

_EPILOG: Final = f"""\
Sets spec.approval to Automatic and removes spec.approvedPlan. The operator carries out a plan that
waits for approval.

{GITOPS}
exit codes: 0 the spec has changed, 2 nothing was pinned, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the object."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG


def run(options: argparse.Namespace) -> int:
    """Set automatic approval in the spec."""
    live = change_spec(options, _make_patch)
    message = f"{live.key}: plans are carried out without approval from now on"
    if live.status.proposed_plan is not None:
        message = f"{message}, pending plan {live.status.proposed_plan.hash} at once"
    print_line(make_console(), escape(message))
    return ExitCode.DONE


def _make_patch(live: LiveObject) -> Mapping[str, Any]:
    if live.spec.approval is Approval.AUTOMATIC and live.spec.approved_plan is None:
        raise InputError(f"{live.key}: nothing is pinned: spec.approval is Automatic")
    return {"approval": Approval.AUTOMATIC.value, "approvedPlan": None}
