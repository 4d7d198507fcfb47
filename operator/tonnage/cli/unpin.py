"""`kubectl tonnage unpin NAME`: let plans be carried out without approval again."""

import argparse
from collections.abc import Mapping
from typing import Any, Final

from rich.markup import escape

from tonnage.api.inference import Approval
from tonnage.cli.changing import GITOPS, Found, add_object_arguments, change_spec
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import make_console

_EPILOG: Final = f"""\
spec.approval becomes Automatic, and spec.approvedPlan is removed. A plan that waits is carried out.

{GITOPS}
exit codes: 0 the spec says so now, 2 nothing was pinned, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The object."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG


def run(options: argparse.Namespace) -> int:
    """Write into the spec that no plan waits any more."""
    found = change_spec(options, _unpin)
    told = f"{found.key}: plans are carried out without approval from now on"
    if found.status.proposed_plan is not None:
        told = f"{told}, {found.status.proposed_plan.hash} that waited at once"
    make_console().print(escape(told), soft_wrap=True)
    return ExitCode.DONE


def _unpin(found: Found) -> Mapping[str, Any]:
    if found.spec.approval is Approval.AUTOMATIC and found.spec.approved_plan is None:
        raise InputError(f"{found.key}: nothing is pinned: spec.approval is Automatic")
    return {"approval": Approval.AUTOMATIC.value, "approvedPlan": None}
