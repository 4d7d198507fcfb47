"""Records Events, which `kubectl describe` and `kubectl events` show.

A repeated event about the same object becomes one Event with a count, as in client-go's recorder.
Each object has its own rate limit, so that one object in a loop silences no other. The recorder
drops an Event that it cannot write: an Event must never delay or fail a reconcile.
"""

import asyncio
import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.api.names import GROUP
from tonnage.api.text import redact
from tonnage.kube.kinds import EVENTS
from tonnage.kube.protocol import ApiError, Object
from tonnage.kube.throttle import TokenBucket

_log = logging.getLogger(__name__)

MAX_SERIES: Final = 4096
"""Series remembered; the least recently recorded is forgotten first."""

MAX_WAITING: Final = 8192
"""Events that wait at most; further ones are dropped, as by client-go's recorder."""

MAX_NOTE_BYTES: Final = 1024
"""Limit of the API for the text of an event."""

_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_TIME_MASK: Final = "(see status)"
"""An Event has its own timestamps; a time in its note would make each repetition a new Event."""

_CLUSTER_NAMESPACE: Final = "default"
"""Namespace of Events about cluster-scoped objects, by convention."""


MAX_OBJECTS: Final = 4096
"""Objects whose rate limits are remembered; the least recently used is forgotten first."""


RecordEvent = Callable[[Mapping[str, Any], bool, str, str, str], None]
"""`EventRecorder.record`."""


@dataclass(slots=True)
class _Series:
    first: str
    count: int = 0


class EventRecorder:
    """Records Events of one operator process at once; `write` gets them while `deliver` runs."""

    def __init__(
        self,
        write: Callable[[Object], Awaitable[None]],
        *,
        identity: str,
        new_bucket: Callable[[], TokenBucket],
        now: Callable[[], datetime],
    ) -> None:
        self._write = write
        self._waiting: asyncio.Queue[Object] = asyncio.Queue(MAX_WAITING)
        self._identity = identity[:128]
        self._new_bucket = new_bucket
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._now = now
        self._series: OrderedDict[str, _Series] = OrderedDict()

    def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None:
        """Queue an Event, or count a repetition. Where the queue is full, drop the Event and log
        that.

        `reason` says why, `action` what the operator did or attempted; each is one CamelCase word.
        """
        note = _TIME.sub(_TIME_MASK, redact(note)).encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
        name = self._name(regarding, reason, note, action)
        series = self._count(name)
        if not self._bucket_of(regarding["metadata"]["uid"]).try_take():
            return  # the next Event carries the count
        event: Object = {
            "apiVersion": EVENTS.api_version,
            "kind": EVENTS.kind,
            "metadata": {"name": name, "namespace": _namespace(regarding)},
            "eventTime": series.first,
            "type": "Warning" if warning else "Normal",
            "reason": reason,
            "action": action,
            "note": note,
            "reportingController": f"{GROUP}/operator",
            "reportingInstance": self._identity,
            "regarding": _reference(regarding),
        }
        if series.count > 1:
            event["series"] = {"count": series.count, "lastObservedTime": self._timestamp()}
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            _log.info("dropping event %s: %d events are waiting", reason, MAX_WAITING)

    async def deliver(self) -> None:
        """Write Events for ever. No ApiError ends this."""
        while True:
            await self._deliver_one(await self._waiting.get())

    async def empty(self, within_seconds: float) -> None:
        """Wait until all Events are written; log how many were not in time."""
        try:
            async with asyncio.timeout(within_seconds):
                await self._waiting.join()
        except TimeoutError:
            _log.info("dropping %d events: not written in time", self._waiting.qsize())

    async def _deliver_one(self, event: Object) -> None:
        try:
            await self._write(event)
        except ApiError as error:
            _log.info("event %s not written: %s", event["reason"], error)
        finally:
            self._waiting.task_done()

    def _name(self, regarding: Mapping[str, Any], reason: str, note: str, action: str) -> str:
        """One name for each process, object and cause: of a written Event only the series may
        change (pkg/apis/core/validation/events.go)."""
        metadata = regarding["metadata"]
        cause = "\0".join((self._identity, metadata["uid"], reason, note, action))
        return f"{metadata['name'][:200]}.{hashlib.sha256(cause.encode()).hexdigest()[:16]}"

    def _count(self, name: str) -> _Series:
        series = self._series.setdefault(name, _Series(first=self._timestamp()))
        series.count += 1
        self._series.move_to_end(name)
        if len(self._series) > MAX_SERIES:
            self._series.popitem(last=False)
        return series

    def _bucket_of(self, uid: str) -> TokenBucket:
        if uid not in self._buckets:
            self._buckets[uid] = self._new_bucket()
        self._buckets.move_to_end(uid)
        if len(self._buckets) > MAX_OBJECTS:
            self._buckets.popitem(last=False)
        return self._buckets[uid]

    def _timestamp(self) -> str:
        return self._now().astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _namespace(regarding: Mapping[str, Any]) -> str:
    namespace: str = regarding["metadata"].get("namespace", _CLUSTER_NAMESPACE)
    return namespace


def _reference(regarding: Mapping[str, Any]) -> Object:
    metadata = regarding["metadata"]
    return {
        "apiVersion": regarding["apiVersion"],
        "kind": regarding["kind"],
        **{key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata},
    }
