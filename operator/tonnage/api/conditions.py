"""Condition types and reasons: a stable API for users, kubectl wait, Argo CD and kstatus."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import StringConstraints

from tonnage.api.schema import ReportedModel

MAX_MESSAGE_BYTES: Final = 1024
"""Maximum length of a condition message, to limit the size of a status."""


class ConditionType(StrEnum):
    """Types of conditions. Reconciling, Stalled and Degraded are present only while true,
    InferencePoolApplied only if the spec requests an InferencePool or one still exists,
    PredictionAccurate only with a measurement of vLLM, and ScalingActive only with
    spec.scaling.targets."""

    ACCEPTED = "Accepted"
    PLACED = "Placed"
    PROGRESSING = "Progressing"
    AVAILABLE = "Available"
    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    DEGRADED = "Degraded"
    INFERENCE_POOL_APPLIED = "InferencePoolApplied"
    PREDICTION_ACCURATE = "PredictionAccurate"
    SCALING_ACTIVE = "ScalingActive"


class Reason(StrEnum):
    """Reason of a condition: one CamelCase word per cause, stable for automation."""

    # Accepted
    VALID = "Valid"
    INVALID_SPEC = "InvalidSpec"
    NAME_CONFLICT = "NameConflict"
    CHILD_REFUSED = "ChildRefused"
    RESOLVING_MODEL = "ResolvingModel"
    MODEL_NOT_FOUND = "ModelNotFound"
    MODEL_ACCESS_DENIED = "ModelAccessDenied"
    MODEL_SOURCE_UNREACHABLE = "ModelSourceUnreachable"
    MODEL_NOT_CONFIRMED = "ModelNotConfirmed"
    INVALID_MODEL = "InvalidModel"
    UNSUPPORTED_ARCHITECTURE = "UnsupportedArchitecture"
    INCOMPATIBLE_PRECISION = "IncompatiblePrecision"
    # Placed
    POOL_CHOSEN = "PoolChosen"
    NO_MATCHING_POOL = "NoMatchingPool"
    DOES_NOT_FIT = "DoesNotFit"
    INSUFFICIENT_GPUS = "InsufficientGPUs"
    INSUFFICIENT_RESOURCES = "InsufficientResources"
    NO_MATCHING_NODES = "NoMatchingNodes"
    QUOTA_EXCEEDED = "QuotaExceeded"
    LIMIT_RANGE_VIOLATED = "LimitRangeViolated"
    POD_SECURITY_VIOLATED = "PodSecurityViolated"
    OVER_BUDGET = "OverBudget"
    TOO_SLOW = "TooSlow"
    SCALED_TO_ZERO = "ScaledToZero"
    AWAITING_APPROVAL = "AwaitingApproval"
    # Progressing, Reconciling
    ROLLING_OUT = "RollingOut"
    ROLLOUT_PAUSED = "RolloutPaused"
    WAITING = "Waiting"
    SETTLED = "Settled"
    # Available, Ready
    REPLICAS_READY = "ReplicasReady"
    CONTAINERS_NOT_READY = "ContainersNotReady"
    OUT_OF_MEMORY = "OutOfMemory"
    IMAGE_PULL_FAILED = "ImagePullFailed"
    CRASH_LOOPING = "CrashLooping"
    SERVER_EXITED = "ServerExited"
    ROLLED_BACK = "RolledBack"
    UNSCHEDULABLE = "Unschedulable"
    NODE_LOST = "NodeLost"
    POD_FAILED = "PodFailed"
    CONTAINER_NOT_CREATED = "ContainerNotCreated"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    NOT_PLACED = "NotPlaced"
    NOT_ACCEPTED = "NotAccepted"
    ENDPOINT_NOT_READY = "EndpointNotReady"
    FORBIDDEN = "Forbidden"
    # InferencePoolApplied
    APPLIED = "Applied"
    KIND_MISSING = "KindMissing"
    UNREACHABLE = "Unreachable"
    # PredictionAccurate
    AS_PREDICTED = "AsPredicted"
    MEASURED_LESS = "MeasuredLess"
    MEASURED_MORE = "MeasuredMore"
    # ScalingActive
    LOAD_MEASURED = "LoadMeasured"
    NO_OPINION = "NoOpinion"
    REPLICAS_GIVEN = "ReplicasGiven"
    # Pools
    POOL_USABLE = "PoolUsable"
    NO_NODES = "NoNodes"
    NO_USABLE_NODES = "NoUsableNodes"
    UNRECOGNISED = "Unrecognised"


class Condition(ReportedModel):
    """A condition, as in metav1.Condition."""

    type: Annotated[str, StringConstraints(max_length=316)]
    """Type of the condition."""
    status: Literal["True", "False", "Unknown"]
    """True, False or Unknown."""
    observed_generation: int
    """Generation of the spec that the condition is based on."""
    last_transition_time: str
    """Time of the last change of status, RFC 3339 in UTC."""
    reason: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    """Reason for the status, in CamelCase."""
    message: Annotated[str, StringConstraints(max_length=32768)]
    """Human-readable details, with numbers."""
