"""How long, in seconds, a server may take to start and to end, and the probes that follow."""

import math
from typing import Any, Final

from tonnage.api.parse import parse_duration
from tonnage.catalog.model import Vendor
from tonnage.render.defaults import Probe, ProbePeriod, defaults
from tonnage.render.quantity import GIB

_INT32_MAX: Final = 2**31 - 1


def startup_seconds(model_gib: int) -> int:
    """How long vLLM may take until it serves: twice the estimate for a slow first load."""
    startup = defaults().startup
    estimate = model_gib * GIB / startup.load_bytes_per_second + startup.warm_up_seconds
    return max(startup.floor_seconds, math.ceil(estimate * startup.slowness))


def progress_deadline_seconds(model_gib: int, vendor: Vendor) -> int:
    """How long a rollout may show no progress: the image, the start, and before that, where GPUs
    have to be freed first, the end of an old pod."""
    startup = defaults().startup
    return (
        termination_grace_seconds(vendor)
        + startup.image_pull_seconds
        + startup_seconds(model_gib)
        + startup.kubelet_margin_seconds
    )


def whole_seconds(duration: str) -> int:
    """A duration of the spec as a Deployment takes it: at least 1, and what an int32 holds."""
    return min(max(1, math.ceil(parse_duration(duration))), _INT32_MAX)


def termination_grace_seconds(vendor: Vendor) -> int:
    """From the deletion of a pod to SIGKILL: traffic leaves, requests drain, the GPUs are freed."""
    server = defaults().server
    return (
        server.pre_stop_seconds
        + server.shutdown_timeout_seconds
        + defaults().release.seconds[vendor]
    )


def lifecycle() -> dict[str, Any]:
    """A pause before SIGTERM. The `sleep` action needs no program in the image; it needs Kubernetes
    1.30, the first to have it on by default."""
    return {"preStop": {"sleep": {"seconds": defaults().server.pre_stop_seconds}}}


def probes(model_gib: int) -> dict[str, Any]:
    """Startup, readiness and liveness probe, all on /health.

    While vLLM starts, its port refuses connections; from then on /health is 200 as long as the
    engine lives. A full queue answers requests with 503, but not this path.
    """
    configured = defaults().probes
    patience = startup_seconds(model_gib) + defaults().startup.kubelet_margin_seconds
    return {
        "startupProbe": {
            **_probe(configured.startup),
            "failureThreshold": math.ceil(patience / configured.startup.period_seconds),
        },
        "readinessProbe": _probe_with_threshold(configured.readiness),
        "livenessProbe": _probe_with_threshold(configured.liveness),
    }


def _probe(period: ProbePeriod) -> dict[str, Any]:
    return {
        "httpGet": {"path": defaults().server.health_path, "port": "http"},
        "periodSeconds": period.period_seconds,
        "timeoutSeconds": period.timeout_seconds,
    }


def _probe_with_threshold(probe: Probe) -> dict[str, Any]:
    return {**_probe(probe), "failureThreshold": probe.failure_threshold}
