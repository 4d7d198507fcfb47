"""`kubectl tonnage restart NAME`: start all replicas anew, by the strategy of the spec."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.markup import escape

from tonnage.api.conditions import ConditionType, Reason
from tonnage.cli.changing import GITOPS, Found, add_object_arguments, change_spec
from tonnage.cli.errors import ExitCode
from tonnage.cli.output import make_console
from tonnage.reconcile.findings import format_time

_EPILOG: Final = f"""\
The time of the restart stands in spec.rollout.restartedAt. A restart is no other plan, and needs no
approval.

{GITOPS}
exit codes: 0 the spec says so now, 2 no such object, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The object."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG


def run(options: argparse.Namespace) -> int:
    """Write the time of now into the spec."""
    at = format_time(datetime.now(UTC))

    def decide(_: Found) -> Mapping[str, Any]:
        return {"rollout": {"restartedAt": at}}

    found = change_spec(options, decide)
    told = f"{found.key}: the replicas are started anew (spec.rollout.restartedAt: {at})"
    if _is_held_up(found):
        told = f"{told}, together with the plan that waits, once that is approved"
    make_console().print(escape(told), soft_wrap=True)
    return ExitCode.DONE


def _is_held_up(found: Found) -> bool:
    """Whether the replicas are left as they are until a plan is approved."""
    return any(
        condition.type == ConditionType.PLACED and condition.reason == Reason.AWAITING_APPROVAL
        for condition in found.status.conditions
    )
