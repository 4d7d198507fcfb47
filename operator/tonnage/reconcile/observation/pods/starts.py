"""What a replica that is not ready does, and how long each phase of a start took.

The pod's own conditions say it up to the start of the container, and vLLM's log from then on.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise
from typing import Final

from tonnage.api.conditions import StartPhase
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.engines.medium import Medium
from tonnage.engines.model_source import medium_of
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.telemetry.download_progress import DownloadProgress
from tonnage.telemetry.startup_progress import LoadedFiles, LogProgress

_CREATING: Final = ("ContainerCreating", "PodInitializing")


@dataclass(frozen=True, slots=True)
class PodStart:
    """What a pod that is not ready does, since when; `files` are the weights that it has loaded,
    while it loads, `download` what its node has of them, while they are downloaded to it."""

    phase: StartPhase
    since: datetime
    files: LoadedFiles | None = None
    download: DownloadProgress | None = None


@dataclass(frozen=True, slots=True)
class FinishedStart:
    """Seconds in each phase of a start that has ended, in this pool, from this medium."""

    pool: str
    medium: Medium
    seconds: Mapping[StartPhase, float]


@dataclass(frozen=True, slots=True)
class Starts:
    """What the pods that have been starting for long do, by pod, and when there may be more to say;
    None where only a change of a pod says more."""

    by_pod: Mapping[str, PodStart] = field(default_factory=dict)
    again_at: datetime | None = None


NO_STARTS: Final = Starts()


@dataclass(frozen=True, slots=True)
class Replicas:
    """The pods of one object, the pools of its placements, and the medium of its weights."""

    key: Key
    pods: Sequence[ChildPod]
    pools: Mapping[str, str]
    medium: Medium


ReadStarts = Callable[[Replicas], Awaitable[Starts]]
"""Reads what the pods do that have been starting for long."""


async def read_no_starts(replicas: Replicas) -> Starts:
    """Read none, as in a dump of a cluster."""
    return NO_STARTS


def replicas_of(
    key: Key,
    spec: InferenceDeploymentSpec,
    deployments: Iterable[ChildDeployment],
    pods: Sequence[ChildPod],
) -> Replicas:
    """The replicas of an object whose spec is valid."""
    pools = {deployment.placement: deployment.pool for deployment in deployments}
    return Replicas(key, pods, pools, medium_of(spec))


def is_starting(pod: ChildPod) -> bool:
    """Whether the pod has the server of a replica, on its first start, and nothing has failed."""
    if not pod.serves or pod.ready or pod.deleting or pod.lost:
        return False
    if pod.end is not None or pod.no_weights is not None:
        return False
    return pod.waiting is None or pod.waiting[0] in _CREATING


def is_downloading(pod: ChildPod) -> bool:
    """Whether its node does not have all weights yet, and they are being downloaded to it."""
    times = pod.times
    return times.downloads is not None and not times.has_weights and not times.runs


def find_start(
    pod: ChildPod,
    progress: LogProgress,
    medium: Medium,
    download: DownloadProgress | None = None,
) -> PodStart:
    """What a starting pod does; `progress` is what the log of its container says, `download` what
    that of the container says that brings weights to its node."""
    if pod.node is None:
        return PodStart(StartPhase.SCHEDULING, pod.created)
    times, scheduled = pod.times, pod.scheduled or pod.created
    if times.runs:
        reached = _by_medium(progress.reached, medium)
        phase = next(reversed(reached), StartPhase.STARTING)
        files = progress.files if phase is StartPhase.LOADING else None
        return PodStart(phase, reached.get(phase) or times.started or scheduled, files)
    if times.sandboxed is None:
        return PodStart(StartPhase.CREATING, scheduled)
    if times.downloads is not None and is_downloading(pod):
        return PodStart(StartPhase.DOWNLOADING, times.downloads, download=download)
    if times.initializes and times.initialized is None:
        return PodStart(StartPhase.INITIALIZING, times.sandboxed)
    return PodStart(StartPhase.PULLING, _pulls_since(pod, times.sandboxed))


def measure_phases(
    pod: ChildPod, progress: LogProgress | None, medium: Medium
) -> dict[StartPhase, float]:
    """Seconds in each phase of the start of a ready pod whose container has not restarted.
    `progress` is None where the log does not have the whole start: then the phases of vLLM are left
    out."""
    times = pod.times
    if pod.scheduled is None or times.started is None or times.answers is None:
        return {}
    begins = dict(_begins_of_pod(pod, pod.scheduled, times.started))
    end = times.started
    if progress is not None:
        begins |= {StartPhase.STARTING: times.started, **_by_medium(progress.reached, medium)}
        end = times.answers
    steps = [*begins.items(), (None, end)]
    return {
        phase: max(0.0, (until - since).total_seconds())
        for (phase, since), (_, until) in pairwise(steps)
        if phase is not None
    }


def _begins_of_pod(
    pod: ChildPod, scheduled: datetime, started: datetime
) -> Iterator[tuple[StartPhase, datetime]]:
    """When the phases before the start of the container began. A kubelet may report that its
    sandbox is there only together with the container."""
    times = pod.times
    yield StartPhase.SCHEDULING, pod.created
    yield StartPhase.CREATING, scheduled
    if times.sandboxed is None or times.sandboxed >= started:
        return
    if times.initializes:
        yield StartPhase.INITIALIZING, times.sandboxed
    if times.downloads is not None and times.downloads <= _pulls_since(pod, times.sandboxed):
        yield StartPhase.DOWNLOADING, times.downloads
    yield StartPhase.PULLING, _pulls_since(pod, times.sandboxed)


def _pulls_since(pod: ChildPod, sandboxed: datetime) -> datetime:
    """Without init containers, Initialized is older than the sandbox."""
    return max(sandboxed, pod.times.initialized or sandboxed)


def _by_medium(
    reached: Mapping[StartPhase, datetime], medium: Medium
) -> dict[StartPhase, datetime]:
    """The phases of the log. What is on no Hub is not downloaded, and loads from the beginning."""
    if medium is Medium.HUB or StartPhase.DOWNLOADING not in reached:
        return dict(reached)
    begins = {StartPhase.LOADING: reached[StartPhase.DOWNLOADING]}
    later = (StartPhase.DOWNLOADING, StartPhase.LOADING)
    return begins | {phase: at for phase, at in reached.items() if phase not in later}
