"""Events for people: `kubectl describe` and `kubectl events` show them.

The same thing said again about the same object becomes one event with a count, as in client-go's
recorder. Each object has a limit of its own, so that one that turns for ever silences no other. An
event that cannot be written is dropped: it must never hold up or fail a reconcile.
"""

import hashlib
import logging
import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from tonnage.api.names import GROUP
from tonnage.api.redact import redact
from tonnage.kube.kinds import EVENTS
from tonnage.kube.protocol import ApiError, Object
from tonnage.kube.throttle import TokenBucket

_log = logging.getLogger(__name__)

MAX_SERIES: Final = 4096
"""Series remembered; the least recently told is forgotten first."""

MAX_NOTE_BYTES: Final = 1024
"""Limit of the API for the text of an event."""

_TIME: Final = re.compile(r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
_TIME_TOLD: Final = "(see status)"
"""An event has times of its own; with another in its note, the same thing would be a new one."""

_CLUSTER_NAMESPACE: Final = "default"
"""Where events about cluster-scoped objects are kept, by convention."""


MAX_OBJECTS: Final = 4096
"""Objects whose limits are remembered; the one told of least recently is forgotten first."""


@dataclass(slots=True)
class _Series:
    first: str
    count: int = 0


class EventWriter(Protocol):
    """Where events go."""

    async def create_event(self, event: Object) -> None:
        """Write an events.k8s.io/v1 Event."""
        ...


class EventRecorder:
    """Writes events in the name of one operator process."""

    def __init__(
        self,
        api: EventWriter,
        *,
        identity: str,
        new_bucket: Callable[[], TokenBucket],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._identity = identity[:128]
        self._new_bucket = new_bucket
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()
        self._now = now
        self._series: OrderedDict[str, _Series] = OrderedDict()

    async def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None:
        """Tell it, counted when it was told before. Never raises for an API server's refusal.

        `reason` says why in one CamelCase word, `action` what was done or attempted, likewise.
        """
        note = _TIME.sub(_TIME_TOLD, redact(note)).encode()[:MAX_NOTE_BYTES].decode(errors="ignore")
        name = self._name(regarding, reason, note, action)
        series = self._count(name)
        if not self._bucket_of(regarding["metadata"]["uid"]).try_take():
            return  # the count is not lost, the next one carries it
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
            await self._api.create_event(event)
        except ApiError as error:
            _log.info("event %s not written: %s", reason, error)

    def _name(self, regarding: Mapping[str, Any], reason: str, note: str, action: str) -> str:
        """The same for the same cause, told by the same process about the same object; of all else
        in an event only the series may change (pkg/apis/core/validation/events.go)."""
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
