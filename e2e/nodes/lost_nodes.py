"""The pods of a node whose kubelet is silent, and of one that reports again.

The node controller marks the pods of a silent node as not ready, after a grace period in which no
test wants to wait; a kubelet that speaks again reports its pods as they are. KWOK has no stage that
looks from a pod to its node, so this thread plays both for nodes labelled as silent.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime

from e2e.harness.failure import HarnessError
from e2e.harness.rest import ApiError, Json, Rest
from e2e.nodes.descriptions import READY_LABEL

_SILENT = {"labelSelector": f"{READY_LABEL}=unknown"}
_PAUSE = 1.0  # after the watch broke
_NODE_TIMEOUT = 120.0
_STRATEGIC = "application/strategic-merge-patch+json"


class LostNodes:
    """Watch the nodes that are labelled as silent, and care for their pods."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    def start(self) -> None:
        """Work in the background until the process ends."""
        threading.Thread(target=self._run, name="lost-nodes", daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                for name, silent in self._changes():
                    self._mark_pods(name, silent=silent)
            except (HarnessError, OSError, ValueError) as error:
                sys.stderr.write(f"lost nodes: {error}\n")
                time.sleep(_PAUSE)

    def _changes(self) -> Iterator[tuple[str, bool]]:
        """Yield nodes that get the label (True) or lose it, as the selected watch sees them."""
        listed = self._rest.request("GET", "/api/v1/nodes", query=_SILENT)
        for node in listed["items"]:
            yield node["metadata"]["name"], True
        query = _SILENT | {"watch": "1", "resourceVersion": listed["metadata"]["resourceVersion"]}
        for line in self._rest.lines("/api/v1/nodes", query):
            event = json.loads(line)
            if event["type"] == "ERROR":
                raise HarnessError(event["object"].get("message", "the watch broke"))
            if event["type"] in {"ADDED", "DELETED"}:
                yield event["object"]["metadata"]["name"], event["type"] == "ADDED"

    def _mark_pods(self, node: str, *, silent: bool) -> None:
        """Once KWOK has set the node's condition, set Ready of its pods accordingly."""
        if not self._await_condition(node, silent=silent):
            return
        query = {"fieldSelector": f"spec.nodeName={node}"}
        for pod in self._rest.request("GET", "/api/v1/pods", query=query)["items"]:
            if _containers_ready(pod) and _ready(pod) == ("True" if silent else "False"):
                self._mark(pod, "False" if silent else "True")

    def _mark(self, pod: Json, status: str) -> None:
        meta = pod["metadata"]
        now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        condition = {"type": "Ready", "status": status, "lastTransitionTime": now}
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
        change = {"status": {"conditions": [condition]}}
        try:
            self._rest.request("PATCH", path, change, content_type=_STRATEGIC)
        except ApiError as error:
            if error.code != 404:
                raise

    def _await_condition(self, name: str, *, silent: bool) -> bool:
        """Wait for the node's Ready condition; False when the node is gone instead, or the other
        kind of node by now: what was to be done is overtaken."""
        status = "Unknown" if silent else "True"
        deadline = time.monotonic() + _NODE_TIMEOUT
        while time.monotonic() < deadline:
            try:
                node = self._rest.request("GET", f"/api/v1/nodes/{name}")
            except ApiError as error:
                if error.code == 404:
                    return False
                raise
            if ((node["metadata"].get("labels") or {}).get(READY_LABEL) == "unknown") != silent:
                return False
            if _ready(node) == status:
                return True
            time.sleep(0.1)
        return False


def _ready(item: Json) -> str:
    """Return the status of the Ready condition, empty while there is none."""
    conditions = item["status"].get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "")


def _containers_ready(pod: Json) -> bool:
    statuses = pod["status"].get("containerStatuses") or []
    return bool(statuses) and all(status["ready"] for status in statuses)
