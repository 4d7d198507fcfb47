"""Where kube-scheduler puts the replicas of a model: on several nodes, and in several zones.

The operator sets no topologySpreadConstraints, since they would change the pod template of models
that run. kube-scheduler has default constraints for pods of Services and ReplicaSets
(`PodTopologySpreadArgs.defaultingType: System`): hostname with maxSkew 3 and zone with maxSkew 5,
both ScheduleAnyway.
"""

from __future__ import annotations

import pytest

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference

ZONE = "topology.kubernetes.io/zone"
MODELS = ("first", "second", "third")


def group(name: str, zone: str, count: int) -> Json:
    return {"name": name, "accelerator": "mi300x", "count": count, "labels": {ZONE: zone}}


@pytest.mark.parametrize("model", MODELS)
def test_two_replicas_run_in_two_zones(fleet: UseFleet, user: User, model: str) -> None:
    """By chance alone, three nodes of ten would get the second replica in one case of three, and
    all three models in one of 27."""
    fleet({"groups": [group("near", "a", 5), group("far", "b", 1)]})
    user.apply(inference(model, "llama-3.1-8b", replicas=2))
    user.wait_ready(model)
    pods = user.children("pods", model)
    assert all("topologySpreadConstraints" in pod["spec"] for pod in pods) is False
    zones = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in nodes(user)}
    assert sorted(zones[pod["spec"]["nodeName"]] for pod in pods) == ["a", "b"]


def test_each_replica_has_a_node_of_its_own(fleet: UseFleet, user: User) -> None:
    fleet({"groups": [group("near", "a", 4)]})
    user.apply(inference("llama", "llama-3.1-8b", replicas=4))
    user.wait_ready("llama")
    pods = user.children("pods", "llama")
    assert len({pod["spec"]["nodeName"] for pod in pods}) == 4


def nodes(user: User) -> list[Json]:
    return user.admin.items("nodes")
