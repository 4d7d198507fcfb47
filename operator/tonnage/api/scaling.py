"""The number of replicas without `spec.replicas`: bounds, load targets, and their status."""

from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from tonnage.api.schema import (
    STRICT_NUMBER,
    ApiModel,
    Duration,
    Fraction,
    PositiveDuration,
    PositiveInt,
    ReportedModel,
)

MetricName = Annotated[
    str, StringConstraints(pattern=r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", min_length=1, max_length=200)
]
LabelName = Annotated[str, StringConstraints(pattern=r"^[a-zA-Z_][a-zA-Z0-9_]*$", max_length=128)]

_TARGETS: Final = (
    "waitingRequests",
    "kvCacheUsage",
    "runningRequests",
    "timeToFirstToken",
    "timePerOutputToken",
)


class ScalingTargets(ApiModel):
    """Targets for the metrics of vLLM. The target that needs the most replicas applies. At least
    one of the fields must be set."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": " || ".join(f"has(self.{name})" for name in _TARGETS),
                    "message": f"set at least one of {', '.join(_TARGETS)}",
                }
            ]
        }
    )

    waiting_requests: Annotated[int, Field(ge=1, le=1_000_000), STRICT_NUMBER] | None = None
    """Target number of waiting requests per replica (vllm:num_requests_waiting). Default: no
    target."""
    kv_cache_usage: Fraction | None = None
    """Target usage of the KV cache (vllm:kv_cache_usage_perc), for example 0.8. Waiting requests
    count as running. Default: no target."""
    running_requests: PositiveInt | None = None
    """Target number of running requests per replica (vllm:num_requests_running). Default: no
    target."""
    time_to_first_token: PositiveDuration | None = None
    """Target mean time from a request to its first token (vllm:time_to_first_token_seconds), for
    example 2s. Default: no target."""
    time_per_output_token: PositiveDuration | None = None
    """Target mean time between two tokens of a request (vllm:inter_token_latency_seconds), for
    example 60ms. Default: no target."""

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not self.to_dict():
            raise ValueError(f"set at least one of {', '.join(_TARGETS)}; found none")
        return self


class ScalingDirection(ApiModel):
    """How fast the number of replicas follows the load in one direction."""

    stabilization_window: Duration
    """How long the load must call for the change, for example 10m. 0s: scale immediately."""


class QueuedRequests(ApiModel):
    """Gauge of the requests that wait in front of the replicas, exported by a gateway."""

    metric: MetricName
    """Name of the metric, for example gateway_queued_requests. The operator adds up its series."""
    match_labels: Annotated[
        dict[LabelName, Annotated[str, StringConstraints(max_length=256)]],
        Field(min_length=1, max_length=16),
    ]
    """Labels that select the requests for this model. At least one is required."""


class ScaleToZero(ApiModel):
    """Scaling to zero while there are no requests."""

    after: Duration | None = None
    """Time without running or waiting requests before scaling to zero. Default: 15m."""
    queued_requests: QueuedRequests
    """Metric of waiting requests to scale up from zero; without replicas, vLLM reports none."""


class Scaling(ApiModel):
    """Bounds on the number of replicas without `spec.replicas`, and load targets."""

    model_config = ConfigDict(
        json_schema_extra={
            "x-kubernetes-validations": [
                {
                    "rule": "self.minReplicas <= self.maxReplicas",
                    "message": "minReplicas must not be above maxReplicas (default 64)",
                },
                {
                    "rule": "!has(self.scaleToZero) || has(self.targets)",
                    "message": "scaleToZero needs targets",
                },
            ]
        }
    )

    min_replicas: Annotated[int, Field(ge=1, le=1000), STRICT_NUMBER] = 1
    """Minimum number of replicas, unless scaled to zero. Default: 1."""
    max_replicas: Annotated[int, Field(ge=1, le=1000), STRICT_NUMBER] = 64
    """Maximum number of replicas, even if the workload needs more. Default: 64."""
    targets: ScalingTargets | None = None
    """Targets for the load that Prometheus measures. With `spec.replicas`, the operator only
    reports the number, in status.scaling and metric tonnage_wanted_replicas. Default: only
    `spec.workload` sets the number."""
    scale_up: ScalingDirection | None = None
    """Scaling to more replicas. Default: immediate."""
    scale_down: ScalingDirection | None = None
    """Scaling to fewer replicas. Default: after 5m."""
    scale_to_zero: ScaleToZero | None = None
    """Scaling to zero while there are no requests. Default: never below minReplicas."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"minReplicas {self.min_replicas} is above maxReplicas {self.max_replicas}; "
                "lower minReplicas or raise maxReplicas"
            )
        return self

    @model_validator(mode="after")
    def _check_scale_to_zero(self) -> Self:
        if self.scale_to_zero is not None and self.targets is None:
            raise ValueError(
                "scaleToZero is set and targets is not; set a target, for example waitingRequests"
            )
        return self


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
