"""Read the logs of containers that failed: they have the cause, which a kubelet's message cuts."""

from contextlib import suppress
from typing import Final

from tonnage.engines.registry import engine_named
from tonnage.kube.protocol import ApiError, ClusterReader
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.pods.failures import needs_log
from tonnage.telemetry.startup_log import find_cause

TAIL_BYTES: Final = 64 * 1024
"""Bytes read from the end of a failed container's log: vLLM logs the cause up to 10 KB before."""

_LOGS_PER_RECONCILE: Final = 3


async def read_failed_logs(
    api: ClusterReader, namespace: str, pods: tuple[ChildPod, ...]
) -> dict[str, str]:
    """The logs of the newest failed pods; a log that cannot be read is left out."""
    failed = [pod for pod in reversed(pods) if needs_log(pod)]
    logs = {}
    for pod in failed[:_LOGS_PER_RECONCILE]:
        log = await _read_log_of_failed_run(api, namespace, pod)
        if log is not None:
            logs[pod.name] = log
    return logs


async def _read_log_of_failed_run(api: ClusterReader, namespace: str, pod: ChildPod) -> str | None:
    """The end of the log of the container's last run that ended; None if it cannot be read.

    The kubelet restarts a container at once after its first failure. Where the pod in the store is
    older than that, the current log is the one of the new run, and names no cause.
    """
    current = None
    if not pod.ended_before:
        current = await _read_log(api, namespace, pod, previous=False)
        if current is not None and find_cause(current, pod.engine) is not None:
            return current
    previous = await _read_log(api, namespace, pod, previous=True)
    return current if previous is None else previous


async def _read_log(
    api: ClusterReader, namespace: str, pod: ChildPod, *, previous: bool
) -> str | None:
    with suppress(ApiError):
        container = engine_named(pod.engine).name
        return await api.pod_log(
            namespace, pod.name, container, previous=previous, limit_bytes=TAIL_BYTES
        )
    return None
