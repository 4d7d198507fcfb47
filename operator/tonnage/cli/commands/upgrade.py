"""`kubectl tonnage upgrade NAME`: run the replicas with what the operator would choose now."""

import argparse
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from rich.markup import escape

from tonnage.api.inference import Approval
from tonnage.api.status import AvailableUpdate
from tonnage.cli.errors import ExitCode, InputError
from tonnage.cli.output import make_console
from tonnage.cli.spec_change import GITOPS, LiveObject, add_object_arguments, change_spec
from tonnage.reconcile.observation.findings import format_time

_EPILOG: Final = f"""\
Takes the release, image and settings of status.availableUpdate: spec.rollout.upgradedAt holds the
time of the upgrade. The replicas stay on their pool, and are replaced with the rollout strategy of
the spec.

{GITOPS}
exit codes: 0 the spec has changed, 2 no update is available, or the cluster cannot be used
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the object."""
    add_object_arguments(parser)
    parser.epilog = _EPILOG


def run(options: argparse.Namespace) -> int:
    """Write the current time into spec.rollout.upgradedAt."""
    at = format_time(datetime.now(UTC))

    def make_patch(live: LiveObject) -> Mapping[str, Any]:
        _get_update(live)
        return {"rollout": {"upgradedAt": at}}

    live = change_spec(options, make_patch)
    message = f"{live.key}: changing {_get_update(live).message} (spec.rollout.upgradedAt: {at})"
    if live.spec.approval is Approval.MANUAL:
        message = f"{message}, once the plan is approved"
    make_console().print(escape(message), soft_wrap=True)
    return ExitCode.DONE


def _get_update(live: LiveObject) -> AvailableUpdate:
    """The update to take. Raises InputError."""
    update = live.status.available_update
    if update is None:
        raise InputError(
            f"{live.key}: no update is available: the replicas run with what the operator would"
            " choose now"
        )
    return update
