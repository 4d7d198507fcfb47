"""What the measured load asks for, as the status of an InferenceDeployment tells it."""

from typing import Annotated

from pydantic import Field

from tonnage.api.schema import ReportedModel


class PastRecommendation(ReportedModel):
    """A number of replicas that was recommended once and still holds the present one back."""

    replicas: int
    """The number."""
    until: str
    """When it was recommended last, RFC 3339 in UTC."""


class FullReplicaStatus(ReportedModel):
    """What one replica is reckoned to carry at its fullest."""

    requests_at_once: int
    """Typical requests that it holds at once."""
    max_num_seqs: int
    """Requests that vLLM schedules at once, whatever their size."""
    tokens_per_second: float | None = None
    """What it generates then, by the estimate; absent where figures lack."""
    slowdown_per_request: float | None = None
    """By how much of the time between two tokens of a lone request each further request adds to it,
    by the estimate; absent where figures lack."""


class BesideReplicaStatus(ReportedModel):
    """The same of a replica of a placement beside the first (spec.placement.spread)."""

    placement: str
    """Name of the placement."""
    replica: FullReplicaStatus
    """One of its replicas."""


class ScalingStatus(ReportedModel):
    """What the measured load asks for (spec.scaling.targets)."""

    wanted_replicas: int
    """Replicas that the load asks for, after stabilization and within the bounds."""
    recommended_replicas: int
    """Replicas that it asks for at this moment."""
    reason: str
    """Reason of condition ScalingActive when this was found."""
    message: str
    """Why: one sentence with numbers of the moment when they changed last."""
    higher: Annotated[
        list[PastRecommendation] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """Higher recommendations of the past that the stabilization window may still heed."""
    lower: Annotated[
        list[PastRecommendation] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """Lower ones."""
    placement: str | None = None
    """Name of the placement that the numbers are meant for: another takes another number."""
    replica: FullReplicaStatus | None = None
    """One replica of that placement at its fullest; absent while that is not known."""
    beside: Annotated[
        list[BesideReplicaStatus] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """One replica of each placement beside that one; absent where replicas are not spread."""
