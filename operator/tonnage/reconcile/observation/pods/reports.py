"""What the cluster reports about pods that do not come up, beyond the state of the pods that run.

A pod that failed for good (evicted, rejected by the kubelet) is in no watch of the operator, and
only the Events of a pod say why its container is not created (a volume, a network). Both are read
live, and only of objects that have not been ready for long. How the containers of deleted pods
ended is kept from the watch.
"""

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from tonnage.api.conditions import ConditionType
from tonnage.api.names import LABEL_PLACEMENT
from tonnage.kube.protocol import Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.previous import read_since
from tonnage.workloads.registry import template_of_pod

_CREATING: Final = ("ContainerCreating", "PodInitializing")
_SANDBOX: Final = re.compile(r' ?"?[0-9a-f]{64}"?')
"""Each attempt has a sandbox of its own, whose name would change the status each time."""

_SLACK: Final = timedelta(seconds=60)
"""Condition Ready turns False after the pod has failed, and times of clocks differ."""


@dataclass(frozen=True, slots=True)
class FailedPod:
    """A pod of one placement that failed for good on its node, by the words of its kubelet. `end`
    is how the container of its `engine` ended, where the pod was deleted for that; with
    `lacks_weights`, the container that brings the weights to its node."""

    placement: str
    template: str
    node: str
    created: datetime
    ended: datetime
    reason: str
    message: str
    end: ContainerEnd | None = None
    engine: str = ""
    lacks_weights: bool = False


@dataclass(frozen=True, slots=True)
class PodEvent:
    """The Event that explains best why the container of a pod is not created; `warning`: something
    fails. Without an Event, the reason is the one for which the container waits."""

    reason: str
    message: str
    warning: bool


@dataclass(frozen=True, slots=True)
class PodReports:
    """Pods that failed since the object was ready last, and Events by the names of pods whose
    container has not been created for long."""

    failed: tuple[FailedPod, ...] = ()
    events: Mapping[str, PodEvent] = field(default_factory=dict)


NO_REPORTS: Final = PodReports()

ReadPodReports = Callable[[Key, datetime | None, Sequence[ChildPod]], Awaitable[PodReports]]
"""Reads the reports about an object that has not been ready since then, which has these pods; none
about one that is ready, for which the time is None."""


async def read_no_reports(key: Key, since: datetime | None, pods: Sequence[ChildPod]) -> PodReports:
    """Read none, as in a dump of a cluster."""
    return NO_REPORTS


def unready_since(
    previous_status: Mapping[str, Any], deployments: Iterable[ChildDeployment]
) -> datetime | None:
    """Since when the object has not been ready; None while each replica that a Deployment has is
    ready, or where the status does not say so yet."""
    if all(deployment.serves(deployment.wanted) for deployment in deployments):
        return None
    return read_since(previous_status, ConditionType.READY, "False")


def waits_for_creation(pod: ChildPod) -> bool:
    """Whether the pod has its node, and its container is still to be created; or its claims are."""
    if pod.unclaimed and not pod.deleting:
        return True
    waiting = pod.waiting[0] if pod.waiting else ""
    return pod.node is not None and not pod.deleting and waiting in _CREATING


def find_recent(
    pods: Iterable[FailedPod], since: datetime, now: datetime, recent: timedelta
) -> tuple[FailedPod, ...]:
    """The pods that failed after `since`, the latest last; none if the latest failed longer ago
    than `recent`."""
    ordered = sorted(pods, key=lambda pod: (pod.ended, pod.node))
    failed = tuple(pod for pod in ordered if pod.ended >= since - _SLACK)
    return failed if failed and now - failed[-1].ended <= recent else ()


def ended_pods(pods: Iterable[ChildPod], now: datetime) -> Iterator[FailedPod]:
    """The pods, deleted after a restart, whose container says how it ended.

    A controller that recreates a group for that deletes them at once, with their logs; Events and
    restart counts begin anew. The termination message has the end of the log.
    """
    for pod in pods:
        # An earlier attempt to bring the weights says nothing of a pod that had them.
        end = pod.end or (None if pod.times.has_weights else pod.keeper_end)
        if end is not None:
            yield FailedPod(
                placement=pod.placement,
                template=pod.template,
                node=pod.node or "",
                created=pod.created,
                ended=now,
                reason=end.reason,
                message=end.message,
                end=end,
                engine=pod.engine,
                lacks_weights=pod.end is None,
            )


def choose_event(pod: ChildPod, bodies: Iterable[Object]) -> PodEvent:
    """The newest Warning about the pod, else its newest Event."""
    events = sorted(bodies, key=lambda body: (body.get("type") == "Warning", last_time(body)))
    if not events:
        waiting = "WaitingForResourceClaims" if pod.unclaimed else ""
        return PodEvent(pod.waiting[0] if pod.waiting else waiting, "no Event says why", False)
    newest = events[-1]
    message = _SANDBOX.sub("", str(newest.get("note") or ""))
    return PodEvent(str(newest.get("reason") or ""), message, newest.get("type") == "Warning")


def read_failed_pods(bodies: Iterable[Object]) -> Iterator[FailedPod]:
    """Read pods that failed for good."""
    return map(_read_failed_pod, bodies)


def _read_failed_pod(body: Object) -> FailedPod:
    metadata, status = body["metadata"], body.get("status") or {}
    labels = metadata.get("labels") or {}
    return FailedPod(
        placement=labels.get(LABEL_PLACEMENT, ""),
        template=template_of_pod(labels),
        node=(body.get("spec") or {}).get("nodeName") or "",
        created=datetime.fromisoformat(metadata["creationTimestamp"]),
        ended=max(_times_of(body)),
        reason=str(status.get("reason") or "Failed"),
        message=str(status.get("message") or "").strip(),
    )


def _times_of(body: Object) -> Iterable[datetime]:
    """When the pod changed. A kubelet writes no time of the end of a pod that it rejects."""
    status = body.get("status") or {}
    yield datetime.fromisoformat(body["metadata"]["creationTimestamp"])
    for condition in status.get("conditions") or []:
        if time := condition.get("lastTransitionTime"):
            yield datetime.fromisoformat(time)
    for container in status.get("containerStatuses") or []:
        if time := ((container.get("state") or {}).get("terminated") or {}).get("finishedAt"):
            yield datetime.fromisoformat(time)


def last_time(body: Object) -> str:
    """When an Event was seen last. All components write times that sort as text."""
    series = body.get("series")
    observed = series.get("lastObservedTime") if isinstance(series, dict) else None
    times = (observed, body.get("deprecatedLastTimestamp"), body.get("eventTime"))
    return max((time for time in times if isinstance(time, str)), default="")
