"""`kubectl tonnage restart NAME`: restart all replicas with the rollout strategy of the spec."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.markup import escape

from tonnage.api.conditions import ConditionType, Reason
from tonnage.cli.errors import ExitCode
from tonnage.cli.output import make_console, print_line
from tonnage.cli.spec_change import GITOPS, LiveObject, add_object_arguments, change_spec
from tonnage.reconcile.observation.findings import format_time

_EPILOG: Final = f"""\
spec.rollout.restartedAt holds the time of the restart. A restart does not change the plan and needs
no approval.

{GITOPS}
exit codes: 0 the spec has changed, 2 no such object, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the object."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG


def run(options: argparse.Namespace) -> int:
    """Write the current time into spec.rollout.restartedAt."""
    at = format_time(datetime.now(UTC))

    def make_patch(_: LiveObject) -> Mapping[str, Any]:
        return {"rollout": {"restartedAt": at}}

    live = change_spec(options, make_patch)
    message = f"{live.key}: restarting all replicas (spec.rollout.restartedAt: {at})"
    if _awaits_approval(live):
        message = f"{message} together with the pending plan, once it is approved"
    print_line(make_console(), escape(message))
    return ExitCode.DONE


def _awaits_approval(live: LiveObject) -> bool:
    """Whether the replicas stay unchanged until a plan is approved."""
    return any(
        condition.type == ConditionType.PLACED and condition.reason == Reason.AWAITING_APPROVAL
        for condition in live.status.conditions
    )
