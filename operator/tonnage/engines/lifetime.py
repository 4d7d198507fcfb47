"""Seconds that a server may take to start and to end, and the probes and hooks that follow."""

import math
from typing import Any, Final

from tonnage.api.inference import Rollout
from tonnage.api.parse import parse_duration
from tonnage.catalog.model import Vendor
from tonnage.engines.defaults import Probe, ProbePeriod, load_defaults
from tonnage.engines.interface import ProbePaths
from tonnage.engines.medium import Medium
from tonnage.engines.quantity import GIB

_INT32_MAX: Final = 2**31 - 1


def startup_seconds(model_gib: int, medium: Medium) -> int:
    """Seconds until the server has to serve: twice the estimate for a first load from the
    medium."""
    startup = load_defaults().startup
    load = model_gib * GIB / startup.load_bytes_per_second[medium]
    return max(
        startup.floor_seconds, math.ceil((load + startup.warm_up_seconds) * startup.slowness)
    )


def download_seconds(weights_bytes: int) -> int:
    """Seconds that a container may take to download a checkpoint."""
    download = load_defaults().weights_download
    return int(download.base_seconds + weights_bytes // download.least_bytes_per_second)


def progress_deadline_seconds(
    model_gib: int, medium: Medium, vendor: Vendor, rollout: Rollout, download: int = 0
) -> int:
    """Seconds that a rollout may show no progress: the end of an old pod, where it has to free GPUs
    first, the pull of the engine's image and of an image with the model, a `download` before the
    server starts, and the start; or what the user set."""
    if rollout.progress_deadline is not None:
        return max(1, whole_seconds(rollout.progress_deadline))
    startup = load_defaults().startup
    pulled = model_gib * GIB if medium is Medium.IMAGE else 0
    seconds = (
        termination_grace_seconds(vendor, rollout)
        + startup.image_pull_seconds
        + math.ceil(pulled / startup.pull_bytes_per_second * startup.slowness)
        + download
        + startup_seconds(model_gib, medium)
        + startup.kubelet_margin_seconds
    )
    return min(seconds, _INT32_MAX)


def whole_seconds(duration: str) -> int:
    """A duration of the spec in seconds, at most an int32."""
    return min(math.ceil(parse_duration(duration)), _INT32_MAX)


def drain_seconds(rollout: Rollout) -> int:
    """Seconds that a server may go on with the requests that it has."""
    if rollout.drain is None:
        return load_defaults().server.shutdown_timeout_seconds
    return whole_seconds(rollout.drain)


def termination_grace_seconds(vendor: Vendor, rollout: Rollout) -> int:
    """Seconds from the deletion of a pod to SIGKILL: endpoints, drain, and release of the GPUs."""
    server = load_defaults().server
    return (
        server.pre_stop_seconds + drain_seconds(rollout) + load_defaults().release.seconds[vendor]
    )


def least_grace_seconds(rollout: Rollout) -> int:
    """The seconds of `termination_grace_seconds` that every vendor needs: endpoints and drain."""
    return load_defaults().server.pre_stop_seconds + drain_seconds(rollout)


def render_pause() -> dict[str, Any]:
    """A pause before SIGTERM. The `sleep` action needs no program in the image. It needs Kubernetes
    1.30, the first release that enables it by default."""
    return {"preStop": {"sleep": {"seconds": load_defaults().server.pre_stop_seconds}}}


def render_probes(paths: ProbePaths, model_gib: int, medium: Medium) -> dict[str, Any]:
    """Startup, readiness and liveness probe. While the server starts, its port may refuse
    connections."""
    configured = load_defaults().probes
    seconds = startup_seconds(model_gib, medium) + load_defaults().startup.kubelet_margin_seconds
    return {
        "startupProbe": {
            **_probe(configured.startup, paths.startup),
            "failureThreshold": math.ceil(seconds / configured.startup.period_seconds),
        },
        "readinessProbe": _probe_with_threshold(configured.readiness, paths.readiness),
        "livenessProbe": _probe_with_threshold(configured.liveness, paths.liveness),
    }


def _probe(period: ProbePeriod, path: str) -> dict[str, Any]:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period.period_seconds,
        "timeoutSeconds": period.timeout_seconds,
    }


def _probe_with_threshold(probe: Probe, path: str) -> dict[str, Any]:
    return {**_probe(probe, path), "failureThreshold": probe.failure_threshold}
