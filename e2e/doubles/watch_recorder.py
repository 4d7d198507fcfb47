"""Records every version of an object, or of all objects of a kind, that a watch reports."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType

from e2e.harness.admin import Admin
from e2e.harness.rest import ApiError, Json, Rest

_LOOK_SECONDS = 1  # after so long a watch begins anew, so that its end is noticed


class WatchRecorder:
    """Watches while the `with` block runs; `versions` has the object as it was, oldest first.

    Without a name it watches all objects of the kind in the namespace. `events` has each version
    with the type of its event: ADDED, MODIFIED or DELETED.

    A version between two looks at an object is not lost, as it is with polling.
    """

    def __init__(self, admin: Admin, kind: str, name: str | None, namespace: str) -> None:
        self.events: list[tuple[str, Json]] = []
        resource = admin.resource(kind)
        self._path = resource.path(namespace)
        self._name = name
        self._rest = Rest(admin.rest.access)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._since = str(self._rest.request("GET", self._path)["metadata"]["resourceVersion"])

    @property
    def versions(self) -> list[Json]:
        """Every version, oldest first."""
        return [version for _, version in self.events]

    @property
    def recorded(self) -> int:
        """The version up to which it has recorded all."""
        return int(self._since)

    def __enter__(self) -> WatchRecorder:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join(60 * _LOOK_SECONDS)

    def _watch(self) -> None:
        """Record until the end; a namespace that is gone, or a watch too old, ends it as well. The
        last request begins after the end, so it brings all that was stored before."""
        with suppress(ApiError):
            is_last = False
            while not is_last:
                is_last = self._over.is_set()
                for event in self._look():
                    if event["type"] != "BOOKMARK":
                        self.events.append((event["type"], event["object"]))
                    self._since = event["object"]["metadata"]["resourceVersion"]

    def _look(self) -> Iterator[Json]:
        query = {
            "watch": "true",
            "resourceVersion": self._since,
            "timeoutSeconds": str(_LOOK_SECONDS),
        }
        if self._name is not None:
            query["fieldSelector"] = f"metadata.name={self._name}"
        for line in self._rest.lines(self._path, query):
            event: Json = json.loads(line)
            if event["type"] == "ERROR":
                return
            yield event


def version_of(item: Json) -> int:
    """When the API server stored this version, comparable between objects of one etcd."""
    return int(item["metadata"]["resourceVersion"])
