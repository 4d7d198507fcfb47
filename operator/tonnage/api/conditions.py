"""Condition types, reasons, and phases of a start: a stable API for users, kubectl wait, Argo CD
and kstatus."""

from enum import StrEnum
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

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
    DOWNLOADING_WEIGHTS = "DownloadingWeights"
    WEIGHTS_NOT_DOWNLOADED = "WeightsNotDownloaded"
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


class StartPhase(StrEnum):
    """What a replica that is not ready yet does, in the order of a start."""

    SCHEDULING = "Scheduling"
    """It waits for a node."""
    CREATING = "Creating"
    """The kubelet sets up volumes and network, and creates the container."""
    INITIALIZING = "Initializing"
    """Its init containers run."""
    PULLING = "Pulling"
    """The kubelet pulls the image, and creates the container."""
    STARTING = "Starting"
    """Its container runs. vLLM has not begun to load the model, as far as its log says."""
    DOWNLOADING = "Downloading"
    """The files that are not on the node yet are downloaded from the Hub."""
    LOADING = "Loading"
    """vLLM loads the weights."""
    COMPILING = "Compiling"
    """The weights are loaded; vLLM compiles, measures its memory, and captures graphs."""
    PROBING = "Probing"
    """vLLM has started, and the pod is not ready yet."""


class StartingReplicas(ReportedModel):
    """Replicas that are in the same phase of their start."""

    phase: str
    """What they do: Scheduling, Creating, Initializing, Pulling, Starting, Downloading, Loading,
    Compiling or Probing."""
    replicas: int
    """Number of replicas."""


StartingList = Annotated[
    list[StartingReplicas],
    Field(
        json_schema_extra={
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["phase"],
        }
    ),
]


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
