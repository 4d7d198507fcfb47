"""Read reports about pods that do not come up, at most every few seconds for each object.

A pod that the kubelet rejects is replaced at once, so that its object may be reconciled twice a
second. The reports are kept meanwhile; losing them costs a read. A group of a LeaderWorkerSet is
recreated as soon as a container of it restarts, without end: what the pods said is kept as well,
and losing it costs the causes of earlier failures.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from tonnage import delays
from tonnage.api.names import LABEL_OWNER
from tonnage.kube.kinds import EVENTS, PODS
from tonnage.kube.protocol import ApiError, ClusterReader, Object, ObjectParts, Selection
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod, read_pods
from tonnage.reconcile.observation.pods.reports import (
    NO_REPORTS,
    FailedPod,
    PodEvent,
    PodReports,
    choose_event,
    ended_pods,
    find_recent,
    read_failed_pods,
    waits_for_creation,
)

CAPACITY: Final = 1024
"""Objects whose reports are kept; the one that was read first is dropped first."""

MAX_FAILED: Final = 500
MAX_EVENTS: Final = 50
"""Objects read by one request. Pods are listed by name, so the latest are among any of them."""

MAX_PODS: Final = 3
"""Pods of one object whose Events are read."""

MAX_ENDED: Final = 100
"""Deleted pods of one object of which is kept how their container ended."""

_RECENT: Final = timedelta(seconds=delays.RECENT_FAILURE)


@dataclass(frozen=True, slots=True)
class _Entry:
    at: datetime
    pods: frozenset[str]
    reports: PodReports


class PodReportCache:
    """Reads reports of an API server and keeps them for a moment. For one event loop.

    `take_ended` returns, once, the pods of an object that were deleted after a restart.
    """

    def __init__(
        self,
        api: ClusterReader,
        now: Callable[[], datetime],
        take_ended: Callable[[Key], Iterable[Object]] = lambda key: (),
    ) -> None:
        self._api = api
        self._now = now
        self._take_ended = take_ended
        self._entries: OrderedDict[Key, _Entry] = OrderedDict()
        self._ended: OrderedDict[Key, list[FailedPod]] = OrderedDict()

    async def read(self, key: Key, since: datetime | None, pods: Sequence[ChildPod]) -> PodReports:
        """The reports about an object that has not been ready since then. What cannot be read is
        left out."""
        now = self._now()
        self._keep_ended(key, pods, now)
        if since is None:
            return NO_REPORTS
        deleted = find_recent(self._ended.get(key, ()), since, now, _RECENT)
        if now - since < timedelta(seconds=delays.POD_REPORTS):
            return PodReports(deleted)
        reports = await self._read_live(key, since, now, pods)
        failed = sorted((*reports.failed, *deleted), key=lambda pod: (pod.ended, pod.node))
        return replace(reports, failed=tuple(failed))

    def _keep_ended(self, key: Key, pods: Sequence[ChildPod], now: datetime) -> None:
        """Keep how containers of deleted pods ended, as long as their template is in use."""
        ended = ended_pods(read_pods(self._take_ended(key)), now)
        kept = [*self._ended.pop(key, ()), *ended][-MAX_ENDED:]
        if not kept:
            return
        in_use = {(pod.placement, pod.template) for pod in pods if not pod.deleting}
        placements = {placement for placement, _ in in_use}
        kept = [
            failed
            for failed in kept
            if failed.placement not in placements or (failed.placement, failed.template) in in_use
        ]
        if kept:
            self._ended[key] = kept
        if len(self._ended) > CAPACITY:
            self._ended.popitem(last=False)

    async def _read_live(
        self, key: Key, since: datetime, now: datetime, pods: Sequence[ChildPod]
    ) -> PodReports:
        waiting = [pod for pod in pods if waits_for_creation(pod) and _is_late(pod, now)]
        uids = frozenset(pod.uid for pod in waiting)
        entry = self._entries.get(key)
        if entry is not None and entry.pods == uids and _is_fresh(entry, now):
            return entry.reports
        events = {pod.name: await self._read_event(key, pod) for pod in waiting[-MAX_PODS:]}
        reports = PodReports(await self._read_failed(key, since, now), events)
        self._entries[key] = _Entry(now, uids, reports)
        if len(self._entries) > CAPACITY:
            self._entries.popitem(last=False)
        return reports

    async def _read_failed(self, key: Key, since: datetime, now: datetime) -> tuple[FailedPod, ...]:
        labels = {LABEL_OWNER: key.name}
        selection = Selection(PODS, key.namespace, labels, "status.phase=Failed")
        with suppress(ApiError):
            bodies = await self._api.list_first(selection, ObjectParts.PARTIAL, MAX_FAILED)
            return find_recent(read_failed_pods(bodies), since, now, _RECENT)
        return ()

    async def _read_event(self, key: Key, pod: ChildPod) -> PodEvent:
        selection = Selection(EVENTS, key.namespace, fields=f"regarding.uid={pod.uid}")
        with suppress(ApiError):
            events = await self._api.list_first(selection, ObjectParts.PARTIAL, MAX_EVENTS)
            return choose_event(pod, events)
        return choose_event(pod, ())


def _is_late(pod: ChildPod, now: datetime) -> bool:
    return now - (pod.scheduled or pod.created) >= timedelta(seconds=delays.POD_REPORTS)


def _is_fresh(entry: _Entry, now: datetime) -> bool:
    return now - entry.at < timedelta(seconds=delays.POD_REPORTS_CACHED)
