"""Reads what replicas do that have been starting for long, and measures starts that have ended.

The log of a starting container is read at most every 30 s, less often the longer the start takes
and the more replicas start, and of few containers of an object at a time. What was read is kept
meanwhile. A start that this process has seen is measured once, when its pod is ready: a new process
measures no pod that was ready before it.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tonnage import delays
from tonnage.api.names import WEIGHTS_CONTAINER
from tonnage.engines.registry import engine_named
from tonnage.kube.protocol import LOG_LINES, ApiError, ClusterReader
from tonnage.kube.throttle import TokenBucket
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.pods.starts import (
    FinishedStart,
    Replicas,
    Starts,
    find_start,
    is_downloading,
    is_starting,
    measure_phases,
)
from tonnage.telemetry.download_progress import DownloadProgress, read_download
from tonnage.telemetry.startup_progress import NO_PROGRESS, LogProgress, read_progress

CAPACITY: Final = 4096
"""Objects with starting replicas that are kept; the one that was read first is dropped first."""

LOGS_PER_OBJECT: Final = 5
"""Logs of one object that are read at once. The next reconcile reads the others."""

LOGS_PER_SECOND: Final = 20.0
LOG_BURST: Final = 600
"""Logs of all objects together: when a zone comes back, thousands of replicas start at once."""

TAIL_BYTES: Final = 64 * 1024
"""Bytes from the end of the log of a starting container: the last phase and the last bar."""

WHOLE_BYTES: Final = 512 * 1024
"""Bytes of the log of a start that has ended: 512 for each line that one read returns at most."""

_AGE_SHARE: Final = 0.1
"""A log is read again after this share of the age of the pod, so that a start of hours costs few
reads."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the log of a pod said, and when it was read; None before."""

    progress: LogProgress = NO_PROGRESS
    download: DownloadProgress | None = None
    read_at: datetime | None = None


class StartReader:
    """Reads starts of an API server. For one event loop.

    A pod counts once it is older than `after`. `record` receives each start that has ended. `logs`
    is how many logs of one object are read at once, `clock` a monotonic clock in seconds.
    """

    def __init__(
        self,
        api: ClusterReader,
        now: Callable[[], datetime],
        record: Callable[[FinishedStart], None],
        after: timedelta = timedelta(seconds=delays.START_PHASES),
        logs: int = LOGS_PER_OBJECT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._api = api
        self._now = now
        self._record = record
        self._after = after
        self._logs = logs
        self._bucket = TokenBucket(LOGS_PER_SECOND, LOG_BURST, clock)
        self._kept: OrderedDict[Key, dict[str, _Kept]] = OrderedDict()

    async def read(self, replicas: Replicas) -> Starts:
        """What the pods of an object do that have been starting for long. A log that cannot be
        read says nothing new."""
        now = self._now()
        starting = [pod for pod in replicas.pods if is_starting(pod)]
        slow = [pod for pod in starting if now - pod.created >= self._after]
        known = self._kept.pop(replicas.key, {})
        ended = [pod for pod in replicas.pods if pod.uid in known and _is_first_start(pod)]
        kept = {pod.uid: known.get(pod.uid, _Kept()) for pod in slow}
        kept |= await self._read_due(replicas.key, slow, kept, now)
        measured = self._admit(ended)
        await self._measure(replicas, measured)
        kept |= {pod.uid: known[pod.uid] for pod in ended if pod not in measured}
        if kept:
            self._kept[replicas.key] = kept
        if len(self._kept) > CAPACITY:
            self._kept.popitem(last=False)
        starts = {
            pod.name: find_start(
                pod, kept[pod.uid].progress, replicas.medium, kept[pod.uid].download
            )
            for pod in slow
        }
        young = [pod.created + self._after for pod in starting if pod.uid not in kept]
        logs = [self._due_at(pod, kept[pod.uid]) for pod in slow if _has_log(pod)]
        left = [now] if len(ended) > len(measured) else []
        next_turn = now + timedelta(seconds=delays.START_PHASES)
        moments = (at if at > now else next_turn for at in (*young, *logs, *left))
        return Starts(starts, min(moments, default=None))

    async def _read_due(
        self, key: Key, pods: Sequence[ChildPod], kept: dict[str, _Kept], now: datetime
    ) -> dict[str, _Kept]:
        """Read the logs that are due, those first that were read longest ago."""
        due = [pod for pod in pods if _has_log(pod) and self._due_at(pod, kept[pod.uid]) <= now]
        due.sort(key=lambda pod: kept[pod.uid].read_at or pod.created)
        chosen = self._admit(due)
        logs = await asyncio.gather(*(self._read_log(key, pod, TAIL_BYTES) for pod in chosen))
        return {
            pod.uid: _add(kept[pod.uid], log, pod, now)
            for pod, log in zip(chosen, logs, strict=True)
        }

    def _due_at(self, pod: ChildPod, kept: _Kept) -> datetime:
        """When the log of a pod is to be read next. Where many start, each waits its turn."""
        if kept.read_at is None:
            return pod.created
        turn = sum(map(len, self._kept.values())) / LOGS_PER_SECOND
        pause = timedelta(seconds=max(delays.START_PHASES, turn))
        return kept.read_at + max(pause, (kept.read_at - pod.created) * _AGE_SHARE)

    def _admit(self, pods: Sequence[ChildPod]) -> list[ChildPod]:
        """The first of these pods, as many as may be read now."""
        return [pod for pod in pods[: self._logs] if self._bucket.try_take()]

    async def _measure(self, replicas: Replicas, pods: Sequence[ChildPod]) -> None:
        logs = await asyncio.gather(
            *(self._read_log(replicas.key, pod, WHOLE_BYTES) for pod in pods)
        )
        for pod, log in zip(pods, logs, strict=True):
            progress = read_progress(log, pod.engine) if log and _is_whole(log) else None
            seconds = measure_phases(pod, progress, replicas.medium)
            pool = replicas.pools.get(pod.placement)
            if pool is not None and seconds:
                self._record(FinishedStart(pool, replicas.medium, seconds))

    async def _read_log(self, key: Key, pod: ChildPod, limit_bytes: int) -> str | None:
        downloads = is_downloading(pod)
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(delays.START_LOG):
                return await self._api.pod_log(
                    key.namespace,
                    pod.name,
                    WEIGHTS_CONTAINER if downloads else engine_named(pod.engine).name,
                    previous=False,
                    limit_bytes=limit_bytes,
                    timestamps=not downloads,
                )
        return None


def _is_first_start(pod: ChildPod) -> bool:
    return pod.ready and not pod.deleting and pod.restarts == 0


def _has_log(pod: ChildPod) -> bool:
    return pod.times.runs or is_downloading(pod)


def _add(known: _Kept, log: str | None, pod: ChildPod, now: datetime) -> _Kept:
    """What is known with what the end of the log adds."""
    if log is None:
        return replace(known, read_at=now)
    if is_downloading(pod):
        return _Kept(known.progress, read_download(log) or known.download, now)
    return _Kept(read_progress(log, pod.engine).after(known.progress), None, now)


def _is_whole(log: str) -> bool:
    """Whether nothing may be missing at the beginning."""
    return log.count("\n") < LOG_LINES and len(log.encode()) < WHOLE_BYTES
