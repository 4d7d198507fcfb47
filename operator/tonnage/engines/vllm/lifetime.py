"""Seconds that a server may take to start and to end, and the probes and hooks that follow."""

import math
from typing import Any, Final

from tonnage.api.inference import Rollout
from tonnage.api.parse import parse_duration
from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.flags import engine_flags
from tonnage.catalog.vllm.releases import parse_version
from tonnage.engines.defaults import Probe, ProbePeriod, load_defaults
from tonnage.engines.quantity import GIB

SHUTDOWN_FLAG: Final = "--shutdown-timeout"

_INT32_MAX: Final = 2**31 - 1

WAIT_UNTIL_IDLE: Final = """\
import sys, time, urllib.request
url, pause, drain, interval = sys.argv[1], *map(float, sys.argv[2:])
time.sleep(pause)
end = time.monotonic() + drain
counts = ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:num_requests_swapped")
while time.monotonic() < end:
    try:
        with urllib.request.urlopen(url, timeout=10) as page:
            lines = page.read().decode().splitlines()
    except TimeoutError:
        continue
    if not sum(float(line.split()[-1]) for line in lines if line.startswith(counts)):
        break
    time.sleep(interval)
"""
"""Waits until a server has no request, at most `drain` seconds after a pause, in which endpoints
drop the pod. An error, such as a
server that has ended, ends the wait; a busy server may answer late."""


def startup_seconds(model_gib: int) -> int:
    """Seconds until vLLM has to serve: twice the estimate for a slow first load."""
    startup = load_defaults().startup
    estimate = model_gib * GIB / startup.load_bytes_per_second + startup.warm_up_seconds
    return max(startup.floor_seconds, math.ceil(estimate * startup.slowness))


def progress_deadline_seconds(model_gib: int, vendor: Vendor, rollout: Rollout) -> int:
    """Seconds that a rollout may show no progress: the end of an old pod, where it has to free GPUs
    first, the image pull, and the start; or what the user set."""
    if rollout.progress_deadline is not None:
        return max(1, whole_seconds(rollout.progress_deadline))
    startup = load_defaults().startup
    seconds = (
        termination_grace_seconds(vendor, rollout)
        + startup.image_pull_seconds
        + startup_seconds(model_gib)
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


def drains_by_itself(version: str) -> bool:
    """Whether this vLLM release ends the requests in flight before it ends."""
    since = engine_flags().flags[SHUTDOWN_FLAG].since
    return since is None or parse_version(version) >= parse_version(since)


def termination_grace_seconds(vendor: Vendor, rollout: Rollout) -> int:
    """Seconds from the deletion of a pod to SIGKILL: endpoints, drain, and release of the GPUs."""
    server = load_defaults().server
    return (
        server.pre_stop_seconds + drain_seconds(rollout) + load_defaults().release.seconds[vendor]
    )


def least_grace_seconds(rollout: Rollout) -> int:
    """The seconds of `termination_grace_seconds` that every vendor needs: endpoints and drain."""
    return load_defaults().server.pre_stop_seconds + drain_seconds(rollout)


def render_lifecycle(version: str, rollout: Rollout) -> dict[str, Any]:
    """A pause before SIGTERM. The `sleep` action needs no program in the image. It needs Kubernetes
    1.30, the first release that enables it by default.

    An older vLLM release aborts requests in flight on SIGTERM. Where the user sets a drain, the
    hook waits for them, with the Python that vLLM itself runs on.
    """
    server = load_defaults().server
    if rollout.drain is None or drains_by_itself(version):
        return {"preStop": {"sleep": {"seconds": server.pre_stop_seconds}}}
    url = f"http://127.0.0.1:{server.port}/metrics"
    seconds = (server.pre_stop_seconds, drain_seconds(rollout), server.drain_poll_seconds)
    command = ["python3", "-c", WAIT_UNTIL_IDLE, url, *map(str, seconds)]
    return {"preStop": {"exec": {"command": command}}}


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
