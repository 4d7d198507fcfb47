"""Seconds that a server may take to start and to end, and the probes that follow from them."""

import math
from typing import Any, Final

from tonnage.api.parse import parse_duration
from tonnage.catalog.model import Vendor
from tonnage.engines.defaults import Probe, ProbePeriod, load_defaults
from tonnage.engines.quantity import GIB

_INT32_MAX: Final = 2**31 - 1


def startup_seconds(model_gib: int) -> int:
    """Seconds until vLLM has to serve: twice the estimate for a slow first load."""
    startup = load_defaults().startup
    estimate = model_gib * GIB / startup.load_bytes_per_second + startup.warm_up_seconds
    return max(startup.floor_seconds, math.ceil(estimate * startup.slowness))


def progress_deadline_seconds(model_gib: int, vendor: Vendor) -> int:
    """Seconds that a rollout may show no progress: the end of an old pod, where it has to free GPUs
    first, the image pull, and the start."""
    startup = load_defaults().startup
    return (
        termination_grace_seconds(vendor)
        + startup.image_pull_seconds
        + startup_seconds(model_gib)
        + startup.kubelet_margin_seconds
    )


def whole_seconds(duration: str) -> int:
    """A duration of the spec in seconds for a Deployment: at least 1, at most an int32."""
    return min(max(1, math.ceil(parse_duration(duration))), _INT32_MAX)


def termination_grace_seconds(vendor: Vendor) -> int:
    """Seconds from the deletion of a pod to SIGKILL: endpoints, drain, and release of the GPUs."""
    server = load_defaults().server
    return (
        server.pre_stop_seconds
        + server.shutdown_timeout_seconds
        + load_defaults().release.seconds[vendor]
    )


def least_grace_seconds() -> int:
    """The seconds of `termination_grace_seconds` that every vendor needs: endpoints and drain."""
    server = load_defaults().server
    return server.pre_stop_seconds + server.shutdown_timeout_seconds


def render_lifecycle() -> dict[str, Any]:
    """A pause before SIGTERM. The `sleep` action needs no program in the image. It needs Kubernetes
    1.30, the first release that enables it by default."""
    return {"preStop": {"sleep": {"seconds": load_defaults().server.pre_stop_seconds}}}


def render_probes(model_gib: int) -> dict[str, Any]:
    """Startup, readiness and liveness probe, all on /health.

    While vLLM starts, its port refuses connections; from then on /health answers 200 as long as the
    engine lives. With a full queue vLLM answers requests with 503, but not this path.
    """
    configured = load_defaults().probes
    seconds = startup_seconds(model_gib) + load_defaults().startup.kubelet_margin_seconds
    return {
        "startupProbe": {
            **_probe(configured.startup),
            "failureThreshold": math.ceil(seconds / configured.startup.period_seconds),
        },
        "readinessProbe": _probe_with_threshold(configured.readiness),
        "livenessProbe": _probe_with_threshold(configured.liveness),
    }


def _probe(period: ProbePeriod) -> dict[str, Any]:
    return {
        "httpGet": {"path": load_defaults().server.health_path, "port": "http"},
        "periodSeconds": period.period_seconds,
        "timeoutSeconds": period.timeout_seconds,
    }


def _probe_with_threshold(probe: Probe) -> dict[str, Any]:
    return {**_probe(probe), "failureThreshold": probe.failure_threshold}
