"""What was found of this very spec before, while its model cannot be asked for again.

The operator keeps no facts of models that have to survive it. After a restart, or while a Hub is
out of reach, nothing is known of a model whose replicas serve all the same; that must not turn an
object that was accepted and placed into one that is not.
"""

from dataclasses import dataclass

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.reconcile.accept import Refused
from tonnage.reconcile.findings import Finding, read_finding
from tonnage.reconcile.observe import Observation


@dataclass(frozen=True, slots=True)
class Remembered:
    """Both findings of the status before, and that status itself."""

    accepted: Finding
    placed: Finding
    status: InferenceDeploymentStatus


def remember(observation: Observation, refused: Refused) -> Remembered | None:
    """The findings that still hold; None where the refusal is news, or the spec is another one."""
    if not (refused.pending or refused.reason is Reason.MODEL_SOURCE_UNREACHABLE):
        return None
    try:
        status = parse_model(InferenceDeploymentStatus, dict(observation.previous_status), "status")
    except InvalidSpecError:  # an older version wrote it otherwise
        return None
    if status.observed_generation != observation.generation:
        return None
    before = {found["type"]: found for found in observation.previous_status.get("conditions", [])}
    accepted, placed = (before.get(kind) for kind in (ConditionType.ACCEPTED, ConditionType.PLACED))
    if accepted is None or placed is None or accepted["status"] != "True":
        return None
    return Remembered(read_finding(accepted), read_finding(placed), status)
