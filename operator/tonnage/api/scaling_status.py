"""The number of replicas for the measured load, in the status of an InferenceDeployment."""

from typing import Annotated

from pydantic import Field

from tonnage.api.schema import ReportedModel


class PastRecommendation(ReportedModel):
    """A past recommendation that the stabilization window still includes."""

    replicas: int
    """Recommended number of replicas."""
    until: str
    """End of the recommendation, RFC 3339 in UTC."""


class FullReplicaStatus(ReportedModel):
    """Estimated capacity of one replica at full load."""

    requests_at_once: int
    """Concurrent requests of typical size."""
    max_num_seqs: int
    """Maximum number of requests that vLLM schedules at once."""
    tokens_per_second: float | None = None
    """Estimated generated tokens per second. Absent without an estimate."""
    slowdown_per_request: float | None = None
    """Estimated increase of the time between two tokens per additional request, as a fraction of
    the time with one request. Absent without an estimate."""


class SecondaryReplicaStatus(ReportedModel):
    """Estimated capacity of one replica of an additional placement (spec.placement.spread)."""

    placement: str
    """Name of the placement."""
    replica: FullReplicaStatus
    """One replica of the placement at full load."""


class ScalingStatus(ReportedModel):
    """Number of replicas for the measured load (spec.scaling.targets)."""

    wanted_replicas: int
    """Number of replicas after stabilization, within the bounds."""
    recommended_replicas: int
    """Number of replicas for the current load."""
    reason: str
    """Reason of condition ScalingActive."""
    message: str
    """Details, with numbers from the last change of this status."""
    higher: Annotated[
        list[PastRecommendation] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """Past higher recommendations that the stabilization window still includes."""
    lower: Annotated[
        list[PastRecommendation] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """Past lower recommendations that the stabilization window still includes."""
    placement: str | None = None
    """Name of the placement that the numbers apply to."""
    replica: FullReplicaStatus | None = None
    """One replica of that placement at full load. Absent if unknown."""
    beside: Annotated[
        list[SecondaryReplicaStatus] | None,
        Field(json_schema_extra={"x-kubernetes-list-type": "atomic"}),
    ] = None
    """One replica of each additional placement at full load. Absent without spread."""
