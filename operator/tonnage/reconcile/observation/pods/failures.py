"""Why a pod does not serve: one cause, in the words of the component that reports it."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.text import redact
from tonnage.fit.messages import format_count
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.findings import shorten
from tonnage.reconcile.observation.pods.reports import (
    NO_REPORTS,
    FailedPod,
    PodEvent,
    PodReports,
)
from tonnage.reconcile.observation.pods.scheduler_message import explain_unclaimed
from tonnage.telemetry.startup_log import find_cause

_IMAGE_REASONS: Final = frozenset(
    {"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"}
)
_BACK_OFF: Final = re.compile(r'^Back-off pulling image "[^"]*": (ErrImagePull: )?')
_NAMED_POD: Final = re.compile(r'^(?:pods|Pod) "[^"]*" is ')
"""Each attempt has a pod name of its own, which never appears again."""

_COUNTS: Final = (1, 2, 5, 10, 20, 50)

_CONTAINER_ERRORS: Final = (
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
)


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why a pod does not serve, or cannot be created; `words` come from the API server, the
    scheduler, the kubelet or the engine."""

    subject: str
    reason: Reason
    words: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.words}"


def needs_log(pod: ChildPod) -> bool:
    """Whether to read the cause of a failure from the container's log."""
    return not pod.ready and not pod.deleting and pod.end is not None


def find_failure(
    pods: Iterable[ChildPod],
    logs: Mapping[str, str],
    secrets: Collection[str] = (),
    reports: PodReports = NO_REPORTS,
) -> PodFailure | None:
    """The most important failure; `logs` has the end of a failed container's log by pod, `reports`
    the failed pods of the same template.

    `secrets` are values to redact from every source. Out of memory comes first: it needs a
    decision, the others may pass.
    """
    failures = [
        failure
        for pod in pods
        if not pod.ready
        and not pod.deleting
        and (failure := _diagnose(pod, logs.get(pod.name, ""), secrets, reports)) is not None
    ]
    if reports.failed:
        failures.append(_describe_failed(reports.failed, secrets))
    return min(failures, key=lambda failure: _ORDER.index(failure.reason), default=None)


_ORDER: Final = (
    Reason.OUT_OF_MEMORY,
    Reason.SERVER_EXITED,
    Reason.CRASH_LOOPING,
    Reason.WEIGHTS_NOT_DOWNLOADED,
    Reason.IMAGE_PULL_FAILED,
    Reason.NODE_LOST,
    Reason.CONTAINER_NOT_CREATED,
    Reason.POD_FAILED,
    Reason.CONTAINERS_NOT_READY,
    Reason.UNSCHEDULABLE,
)


def find_refusal(deployments: Iterable[ChildDeployment]) -> PodFailure | None:
    """The failure of the first Deployment whose pods the API server rejects."""
    return next(
        (
            PodFailure(
                f"Deployment {deployment.child.name}",
                Reason.CHILD_REFUSED,
                _NAMED_POD.sub("its pods are ", redact(deployment.refused)),
            )
            for deployment in deployments
            if deployment.refused is not None
        ),
        None,
    )


def _describe_failed(failed: Sequence[FailedPod], secrets: Collection[str]) -> PodFailure:
    """The latest failure. The number is rounded, since pods that are rejected fail every second."""
    latest, count = failed[-1], max(number for number in _COUNTS if number <= len(failed))
    subject = f"{'at least ' if count > 1 else ''}{format_count(count, 'pod')} failed"
    if latest.end is None:
        words = f"{latest.reason} on node {latest.node}: {latest.message}"
        return PodFailure(subject, Reason.POD_FAILED, redact(words, secrets))
    if latest.lacks_weights:
        reason, words = Reason.WEIGHTS_NOT_DOWNLOADED, _explain_keeper(latest.end)
    else:
        reason, words = _explain_end(latest.end, "", latest.engine)
    replaced = "and were replaced" if count > 1 else "and was replaced"
    subject = f"{subject} on node {latest.node} {replaced}" if latest.node else subject
    return PodFailure(subject, reason, redact(words, secrets))


def _diagnose(
    pod: ChildPod, log: str, secrets: Collection[str], reports: PodReports
) -> PodFailure | None:
    cause = _explain_pod(pod, log, reports.events.get(pod.name))
    if cause is None:
        return None
    reason, words = cause
    return PodFailure(f"pod {pod.name}", reason, redact(words, secrets))


def _on_node(pod: ChildPod) -> str:
    return f" on node {pod.node}" if pod.node else ""


def _explain_pod(pod: ChildPod, log: str, event: PodEvent | None) -> tuple[Reason, str] | None:
    if pod.lost:
        return Reason.NODE_LOST, f"its node {pod.node} does not exist"
    if pod.no_weights is not None:
        words = f"{_explain_keeper(pod.no_weights)} (node {pod.node})"
        return Reason.WEIGHTS_NOT_DOWNLOADED, words
    waiting, message = pod.waiting or ("", "")
    if waiting in _IMAGE_REASONS:
        # The kubelet alternates between failing and backing off; both mean the same cause.
        return Reason.IMAGE_PULL_FAILED, _BACK_OFF.sub("", message) or waiting
    if pod.end is not None:
        return _explain_end(pod.end, log, pod.engine)
    if waiting == "CrashLoopBackOff":
        return Reason.CRASH_LOOPING, message or waiting
    if waiting in _CONTAINER_ERRORS:
        return Reason.CONTAINER_NOT_CREATED, f"{waiting}{_on_node(pod)}: {message}"
    if event is not None:
        words = f"{event.reason}{_on_node(pod)}: {event.message}"
        return (
            Reason.CONTAINER_NOT_CREATED if event.warning else Reason.CONTAINERS_NOT_READY,
            words,
        )
    if pod.unschedulable is not None:
        words = pod.unschedulable or "unschedulable"
        cause = explain_unclaimed(words)
        return Reason.UNSCHEDULABLE, f"{words.rstrip('.')}; {cause}" if cause else words
    if pod.held_back is not None:
        return Reason.CONTAINERS_NOT_READY, pod.held_back or "held back by a scheduling gate"
    return None


def _explain_keeper(end: ContainerEnd) -> str:
    """The line that the program left, or the last one of its log, which may have any length."""
    lines = end.message.split("\n")
    words = next((line.strip() for line in reversed(lines) if line.strip()), "")
    is_named = end.reason not in ("", "Error")
    return shorten(words) or (
        f"exit code {end.exit_code}" + (f" ({end.reason})" if is_named else "")
    )


def _explain_end(end: ContainerEnd, log: str, engine: str) -> tuple[Reason, str]:
    """A server that ended has failed, whatever its exit code.

    The message does not count restarts: each restart would cause a status write and an Event.
    """
    cause = find_cause(log, engine) or find_cause(end.message, engine)
    words = cause.message if cause else f"exit code {end.exit_code} ({end.reason or 'no reason'})"
    if end.reason == "OOMKilled":
        words = f"the kernel killed it: host memory limit exceeded; {words}"
        return Reason.OUT_OF_MEMORY, words
    if cause is not None and cause.reason is not None:
        return cause.reason, words
    if end.exit_code == 0:
        return Reason.SERVER_EXITED, f"the server ended with exit code 0: {words}"
    return Reason.CRASH_LOOPING, f"exit code {end.exit_code}: {words}"
