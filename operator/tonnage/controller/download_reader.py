"""Reads how much the Jobs have downloaded that are under way.

The log of a pod is read at most every 30 s, less often the longer the download takes. What was read
is kept meanwhile.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from tonnage import delays
from tonnage.kube.protocol import ApiError, ClusterReader, Object
from tonnage.reconcile.observation.findings import parse_time
from tonnage.telemetry.download_progress import DownloadProgress, read_download
from tonnage.workloads.weights_job import CONTAINER

CAPACITY: Final = 1024
"""Pods that are kept; the one that was read first is dropped first."""

TAIL_BYTES: Final = 16 * 1024
"""Bytes from the end of the log: the program writes a line of 80 every ten seconds."""

_AGE_SHARE: Final = 0.1
"""A log is read again after this share of the age of the pod."""


@dataclass(frozen=True, slots=True)
class _Kept:
    """What the log of a pod said, and when it was read."""

    progress: DownloadProgress | None
    read_at: datetime


class DownloadReader:
    """Reads downloads of an API server. For one event loop."""

    def __init__(self, api: ClusterReader, now: Callable[[], datetime]) -> None:
        self._api = api
        self._now = now
        self._kept: OrderedDict[tuple[str, str], _Kept] = OrderedDict()

    async def read(self, pod: Object) -> DownloadProgress | None:
        """How much the pod has downloaded; None where its log does not say it, or cannot be
        read."""
        metadata, now = pod["metadata"], self._now()
        key, created = (metadata["namespace"], metadata["name"]), metadata["creationTimestamp"]
        kept = self._kept.get(key)
        if kept is not None and now < kept.read_at + _pause(kept.read_at - parse_time(created)):
            return kept.progress
        log = await self._read_log(*key)
        progress = None if log is None else read_download(log)
        if progress is None and kept is not None:
            progress = kept.progress
        self._kept.pop(key, None)
        self._kept[key] = _Kept(progress, now)
        if len(self._kept) > CAPACITY:
            self._kept.popitem(last=False)
        return progress

    async def _read_log(self, namespace: str, pod: str) -> str | None:
        with suppress(ApiError, TimeoutError):
            async with asyncio.timeout(delays.START_LOG):
                return await self._api.pod_log(
                    namespace, pod, CONTAINER, previous=False, limit_bytes=TAIL_BYTES
                )
        return None


def _pause(age: timedelta) -> timedelta:
    return max(timedelta(seconds=delays.START_PHASES), age * _AGE_SHARE)
