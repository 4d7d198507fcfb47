"""Replicas that the API server refuses reserve no GPUs that others could use."""

from __future__ import annotations

from typing import Final

from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, condition, has
from e2e.models import inference
from tests.support.in_memory.cluster import MI300X

ONE_NODE: Final[Json] = {"groups": [{**MI300X, "count": 1, "gpusPerNode": 8}]}
WITH_ACCOUNT: Final[Json] = {"spec": {"serviceAccountName": "models"}}
BACKOFF = 400.0
"""Seconds until the ReplicaSet controller tries again to create pods that were refused: at most as
long as it has been trying."""


def test_another_namespace_gets_the_gpus_of_replicas_whose_pods_are_refused(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet(ONE_NODE)
    with admin.fresh_namespace("greedy") as namespace:
        greedy = User(admin, namespace)
        greedy.apply(inference("greedy", "llama-3.1-8b", replicas=8, podTemplate=WITH_ACCOUNT))
        status = greedy.wait("greedy", has("Ready", "False", "ChildRefused"), timeout=90)
        assert 'serviceaccount "models" not found' in condition(status, "Ready")["message"]
        with admin.fresh_namespace("other") as other_namespace:
            other = User(admin, other_namespace)
            other.apply(inference("llama", "llama-3.1-8b", replicas=8))
            assert other.wait_ready("llama")["readyReplicas"] == 8
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        admin.apply({**account, "metadata": {"name": "models", "namespace": namespace}})
        greedy.wait_ready("greedy", timeout=BACKOFF)


def test_who_waits_reads_who_reserves_the_gpus(fleet: UseFleet, user: User) -> None:
    fleet(ONE_NODE)
    user.apply(inference("first", "llama-3.1-8b", replicas=8))
    user.wait_ready("first")
    user.apply(inference("second", "llama-3.1-8b"))
    status = user.wait("second", has("Placed", "False", "InsufficientGPUs"))
    message = condition(status, "Placed")["message"]
    assert message.endswith(f"; 8 are reserved by {user.namespace}/first")
