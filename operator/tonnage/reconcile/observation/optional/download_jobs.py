"""A Job that downloads a checkpoint, and what its pods and Events say of it.

Both are read live, and only explain: what an API server does not give is left out.
"""

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.kube.kinds import EVENTS, PODS
from tonnage.kube.protocol import ApiError, ClusterReader, Object, ObjectParts, Selection
from tonnage.reconcile.observation.children import Child, read_child
from tonnage.reconcile.observation.findings import parse_time, shorten
from tonnage.reconcile.observation.pods.reports import last_time
from tonnage.telemetry.download_progress import DownloadProgress
from tonnage.workloads.weights_job import CONTAINER

JOB_OF_POD: Final = "batch.kubernetes.io/job-name"
"""Label that the Job controller sets on pods."""

_UNCHANGED_WAIT: Final = frozenset({"ContainerCreating", "PodInitializing"})

_REFUSED: Final = "FailedCreate"
"""Reason of the Events of a Job whose pods the API server refuses (Kubernetes
pkg/controller/controller_utils.go)."""

_MOST_EVENTS: Final = 50

_REFUSED_POD: Final = re.compile(r'^Error creating: (?:(?:pods|Pod) "[^"]*" is )?')
"""Each attempt has a pod name of its own, which never appears again."""


@dataclass(frozen=True, slots=True)
class DownloadJob:
    """A Job that downloads a checkpoint.

    `failed` is when it gave up. `cause` is why it did, or why its newest pod does not run, in the
    words of the program, the scheduler or the kubelet; None where nothing is wrong. `is_held`: the
    cause is none that another attempt of the Job would meet. `progress` is how much it has
    downloaded, None where that is not known. `has_downloaded`: all of it is there, and only a
    container that a webhook has added keeps the Job from its end, maybe for ever.
    """

    child: Child
    created: datetime
    is_complete: bool = False
    failed: datetime | None = None
    cause: str | None = None
    is_held: bool = False
    progress: DownloadProgress | None = None
    has_downloaded: bool = False


ReadDownload = Callable[[Object], Awaitable[DownloadProgress | None]]
"""Reads how much a pod whose program runs has downloaded; None where that is not known."""


async def read_no_download(pod: Object) -> DownloadProgress | None:
    """Read none, as in a dump of a cluster."""
    return None


async def read_job(
    live: ClusterReader | None, body: Object, read_download: ReadDownload
) -> DownloadJob:
    """Read a Job, and from its newest pod, unless `live` is None, the cause of its failure or its
    progress."""
    metadata, status = body["metadata"], as_mapping(body.get("status"))
    conditions = _true_conditions(body)
    child, created = read_child(body), parse_time(metadata["creationTimestamp"])
    if "Complete" in conditions:
        return DownloadJob(child, created, is_complete=True)
    pod = await _read_newest_pod(live, metadata["namespace"], metadata["name"]) if live else None
    pod_status = as_mapping(pod.get("status")) if pod else {}
    failed = conditions.get("Failed")
    if failed is not None:
        at = parse_time(str(failed.get("lastTransitionTime") or metadata["creationTimestamp"]))
        words = shorten(failed.get("message")) or shorten(failed.get("reason")) or "the Job failed"
        return DownloadJob(child, created, failed=at, cause=_explain_pod(pod_status) or words)
    rest = _explain_rest(pod_status)
    held = _explain_suspension(conditions) or rest
    if held is not None:
        has_downloaded = rest is not None
        return DownloadJob(child, created, cause=held, is_held=True, has_downloaded=has_downloaded)
    if pod is None:
        if live is None or status.get("active"):
            return DownloadJob(child, created)
        return DownloadJob(child, created, cause=await _read_refusal(live, metadata))
    is_running = _state_of(pod_status).get("running") is not None
    progress = await read_download(pod) if is_running else None
    return DownloadJob(child, created, cause=_explain_pod(pod_status), progress=progress)


def is_active(job: Child) -> bool:
    """Whether the Job has not ended."""
    return not _true_conditions(job.body).keys() & {"Complete", "Failed"}


def _true_conditions(body: Object) -> Mapping[Any, Mapping[str, Any]]:
    """The conditions of a Job that are True, by type."""
    conditions = map(as_mapping, as_sequence(as_mapping(body.get("status")).get("conditions")))
    return {one.get("type"): one for one in conditions if one.get("status") == "True"}


async def _read_newest_pod(live: ClusterReader, namespace: str, job: str) -> Object | None:
    """The newest pod of the Job; None where there is none, or it could not be read."""
    pods: list[Object] = []
    with suppress(ApiError):
        pods = await live.list(PODS, namespace, {JOB_OF_POD: job})
    return max(pods, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), default=None)


async def _read_refusal(live: ClusterReader, metadata: Mapping[str, Any]) -> str | None:
    """Why the API server refuses the pods of a Job, such as a quota or a webhook. Only an Event
    says it."""
    events: list[Object] = []
    selection = Selection(EVENTS, metadata["namespace"], fields=f"regarding.uid={metadata['uid']}")
    with suppress(ApiError):
        events.extend(await live.list_first(selection, ObjectParts.PARTIAL, _MOST_EVENTS))
    refused = [event for event in events if event.get("reason") == _REFUSED]
    if not refused:
        return None
    note = str(max(refused, key=last_time).get("note") or "")
    return shorten(_REFUSED_POD.sub("its pods are refused: ", note)) or None


def _explain_suspension(conditions: Mapping[Any, Mapping[str, Any]]) -> str | None:
    if "Suspended" not in conditions:
        return None
    return "it is suspended (spec.suspend), as Kueue suspends Jobs until there is quota"


def _explain_rest(status: Mapping[str, Any]) -> str | None:
    """What keeps a pod that has downloaded from its end: a container that a webhook has added."""
    end = as_mapping(_state_of(status).get("terminated"))
    if status.get("phase") != "Running" or end.get("exitCode") != 0:
        return None
    containers = map(as_mapping, as_sequence(status.get("containerStatuses")))
    running = [one.get("name") for one in containers if as_mapping(one.get("state")).get("running")]
    if not running:
        return None
    return shorten(
        "the download has ended, and its pod waits for the end of the containers"
        f" {', '.join(map(str, running))}"
    )


def _state_of(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state of the container that downloads; a webhook may have added others."""
    containers = map(as_mapping, as_sequence(status.get("containerStatuses")))
    container = next((each for each in containers if each.get("name") == CONTAINER), {})
    return as_mapping(container.get("state"))


def _explain_pod(status: Mapping[str, Any]) -> str | None:
    state = _state_of(status)
    end, waiting = as_mapping(state.get("terminated")), as_mapping(state.get("waiting"))
    if status.get("phase") == "Failed":
        words = end.get("message") or status.get("message")
        return shorten(words) or f"the container ended with exit code {end.get('exitCode')}"
    if waiting and waiting.get("reason") not in _UNCHANGED_WAIT:
        return shorten(f"{waiting.get('reason')}: {waiting.get('message') or 'no message'}")
    for condition in map(as_mapping, as_sequence(status.get("conditions"))):
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            return shorten(condition.get("message"))
    return None
