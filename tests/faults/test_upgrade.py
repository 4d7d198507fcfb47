"""A later operator takes over what an earlier one left on a real control plane, and rolls nothing.

The recordings are made by `python -m e2e.recordings.record`; `e2e/delivery/install/test_upgrade.py`
restores them to a real control plane.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.api_server.api_calls import WRITES
from tests.support.faults.recordings import RECORDINGS, comparable_status, load_recording, restore
from tests.support.in_memory.cluster import Cluster
from tonnage.api.names import (
    ANNOTATION_POD_TEMPLATE,
    ANNOTATION_RENDERED,
    ANNOTATION_RENDERED_FROM,
)
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Object

HOUR_SECONDS = 3600
STEP_SECONDS = 60

CHILDREN_AND_PODS = (DEPLOYMENTS, SERVICES, PODS)


@dataclass
class ChangeRecorder:
    """Every change of a cluster since this was made, a roll that is undone among them."""

    cluster: Cluster
    changes: list[tuple[Kind, str, Object]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.cluster.api.listeners.append(self._record)

    def _record(self, kind: Kind, event_type: str, body: Object) -> None:
        self.changes.append((kind, event_type, body))

    def versions(self, kind: Kind) -> list[Object]:
        """Every version of all objects of a kind, oldest first."""
        return [body for changed, _, body in self.changes if changed == kind]


def name_of(body: Object) -> str:
    return str(body["metadata"]["name"])


def values_by_name(cluster: Cluster, kind: Kind, *path: str) -> dict[str, Any]:
    """The values of one field of all objects of a kind, by the objects' names."""
    return {name_of(body): value_of(body, *path) for body in cluster.api.objects(kind)}


def value_of(body: Object, *path: str) -> Any:
    value: Any = body
    for key in path:
        value = value.get(key, {})
    return value


def is_ready(body: Object) -> bool:
    conditions = body.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def without_record(annotations: dict[str, str]) -> dict[str, str]:
    """The annotations without the record of the template, which earlier releases did not write, and
    the digest of all annotations."""
    added = (ANNOTATION_RENDERED_FROM, ANNOTATION_POD_TEMPLATE, ANNOTATION_RENDERED)
    return {key: value for key, value in annotations.items() if key not in added}


def statuses(cluster: Cluster) -> dict[str, object]:
    by_name = values_by_name(cluster, INFERENCE_DEPLOYMENTS, "status")
    return {name: comparable_status(status) for name, status in by_name.items()}


@pytest.mark.parametrize("commit", RECORDINGS)
async def test_an_upgrade_of_a_recorded_cluster_rolls_no_pod(commit, played):
    cluster = restore(load_recording(commit))
    templates = values_by_name(cluster, DEPLOYMENTS, "spec", "template")
    replicas = values_by_name(cluster, DEPLOYMENTS, "spec", "replicas")
    placements = values_by_name(cluster, DEPLOYMENTS, "metadata", "annotations")
    services = values_by_name(cluster, SERVICES, "spec")
    ready = {name_of(body) for body in cluster.api.objects(INFERENCE_DEPLOYMENTS) if is_ready(body)}
    assert len(ready) >= 20
    status = statuses(cluster)
    recorder = ChangeRecorder(cluster)

    for body in cluster.api.objects(INFERENCE_DEPLOYMENTS):
        await cluster.reconcile(name_of(body))
    await cluster.settle()
    for _ in range(HOUR_SECONDS // STEP_SECONDS):
        await cluster.wait(STEP_SECONDS)

    made_or_deleted = [
        f"{event_type} {kind.kind} {name_of(body)}"
        for kind, event_type, body in recorder.changes
        if kind in CHILDREN_AND_PODS and event_type != "MODIFIED"
    ]
    assert made_or_deleted == []
    for body in recorder.versions(DEPLOYMENTS):
        assert value_of(body, "spec", "template") == templates[name_of(body)], name_of(body)
        assert value_of(body, "spec", "replicas") == replicas[name_of(body)], name_of(body)
        annotations = value_of(body, "metadata", "annotations")
        assert without_record(annotations) == without_record(placements[name_of(body)])
    for body in recorder.versions(SERVICES):
        assert value_of(body, "spec") == services[name_of(body)], name_of(body)
    for body in recorder.versions(INFERENCE_DEPLOYMENTS):
        assert is_ready(body) or name_of(body) not in ready, f"{name_of(body)} lost Ready"
    assert cluster.errors == []
    budgets = [call for call in cluster.api.calls if call.kind == POD_DISRUPTION_BUDGETS]
    assert all(call.verb == "apply" for call in budgets), "an earlier release had none"
    writes = [
        (call.verb, call.name)
        for call in cluster.api.calls
        if call.verb in WRITES and call not in budgets
    ]
    played[f"writes when taking over the objects of {commit}"] = len(writes)
    assert {name for verb, name in writes if verb != "apply_status"} <= templates.keys()
    # The scheduler in memory gives another message for the pod of `waits-for-a-node`.
    again = {call for call, times in Counter(writes).items() if times > 1}
    assert again <= {("apply_status", "waits-for-a-node")}
    assert statuses(cluster) == status
