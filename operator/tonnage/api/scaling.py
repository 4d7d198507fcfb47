"""How many replicas there are where `spec.replicas` is absent: bounds, and what load asks for."""

from typing import Annotated, Final, Self

from pydantic import ConfigDict, Field, StringConstraints, model_validator

from tonnage.api.schema import (
    AS_A_NUMBER,
    ApiModel,
    Duration,
    Fraction,
    PositiveDuration,
    PositiveInt,
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
    """What vLLM's own metrics may come to. There are as many replicas as the target needs that
    needs most of them. At least one of the fields is set."""

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

    waiting_requests: Annotated[int, Field(ge=1, le=1_000_000), AS_A_NUMBER] | None = None
    """Requests that may wait for each replica (vllm:num_requests_waiting). Default: no target."""
    kv_cache_usage: Fraction | None = None
    """Share of the KV cache that may be in use (vllm:kv_cache_usage_perc), for example 0.8.
    Requests that wait count as if they ran. Default: no target."""
    running_requests: PositiveInt | None = None
    """Requests that each replica may run at once (vllm:num_requests_running). Default: no
    target."""
    time_to_first_token: PositiveDuration | None = None
    """Mean time from a request to its first token (vllm:time_to_first_token_seconds), for example
    2s. Default: no target."""
    time_per_output_token: PositiveDuration | None = None
    """Mean time between two tokens of a request (vllm:inter_token_latency_seconds), for example
    60ms. Default: no target."""

    @model_validator(mode="after")
    def _check_any(self) -> Self:
        if not self.to_dict():
            raise ValueError(f"set at least one of {', '.join(_TARGETS)}; found none")
        return self


class ScalingDirection(ApiModel):
    """How soon the number of replicas follows the load in one direction."""

    stabilization_window: Duration
    """For how long the load must have asked for it without a break, for example 10m; 0s: at
    once."""


class QueuedRequests(ApiModel):
    """A gauge of requests that wait in front of the replicas, as a gateway exports it."""

    metric: MetricName
    """Name of the metric, for example gateway_queued_requests. All its series are added up."""
    match_labels: Annotated[
        dict[LabelName, Annotated[str, StringConstraints(max_length=256)]],
        Field(min_length=1, max_length=16),
    ]
    """Labels that tell the requests for this model from all others; at least one."""


class ScaleToZero(ApiModel):
    """Leave to stop serving while nobody asks for anything."""

    after: Duration | None = None
    """For how long no request must have run or waited. Default: 15m."""
    queued_requests: QueuedRequests
    """What starts the replicas again: vLLM counts no requests while there is none."""


class Scaling(ApiModel):
    """Bounds on the replicas where `spec.replicas` is absent, and what load asks for."""

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

    min_replicas: Annotated[int, Field(ge=1, le=1000), AS_A_NUMBER] = 1
    """Fewest replicas while there is anything to serve. Default: 1."""
    max_replicas: Annotated[int, Field(ge=1, le=1000), AS_A_NUMBER] = 64
    """Most replicas; a workload that needs more is placed with so many and told so. Default: 64."""
    targets: ScalingTargets | None = None
    """Follow the load that a Prometheus measures. With spec.replicas the number is only told, in
    status.scaling and as metric tonnage_wanted_replicas. Default: as many replicas as
    spec.workload needs, whatever the load is."""
    scale_up: ScalingDirection | None = None
    """Toward more replicas. Default: at once."""
    scale_down: ScalingDirection | None = None
    """Toward fewer replicas. Default: 5m."""
    scale_to_zero: ScaleToZero | None = None
    """Leave to stop serving while nobody asks for anything. Default: never below minReplicas."""

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"minReplicas {self.min_replicas} is above maxReplicas {self.max_replicas}; "
                "lower the one or raise the other"
            )
        return self

    @model_validator(mode="after")
    def _check_what_brings_it_back(self) -> Self:
        if self.scale_to_zero is not None and self.targets is None:
            raise ValueError(
                "scaleToZero is set and targets is not; set a target, for example waitingRequests"
            )
        return self
