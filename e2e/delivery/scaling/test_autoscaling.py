"""A HorizontalPodAutoscaler writes `spec.replicas`; the operator follows and does not write it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.doubles.metrics_api import MetricsApi
from e2e.harness.admin import SLOW, Admin
from e2e.harness.admin import condition as holds
from e2e.harness.leader_worker_set import LeaderWorkerSetController
from e2e.harness.operator_process import USER
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet, clear
from e2e.journeys.user import Predicate, User, condition, has
from e2e.models import inference
from e2e.nodes.descriptions import connected_h100s

QUEUE = "llama_requests_waiting"
HPA = "horizontalpodautoscalers"
SELECTOR = "tonnage.dev/inferencedeployment=llama"


@pytest.fixture(scope="module")
def registered(control_plane: Stack, admin: Admin) -> Iterator[MetricsApi]:
    """The metrics APIs of this module's autoscalers."""
    api = MetricsApi(control_plane)
    api.register(admin)
    yield api
    api.close(admin)


@pytest.fixture
def metrics(registered: MetricsApi) -> MetricsApi:
    """The same without the values of an earlier test."""
    registered.external.clear()
    registered.per_pod.clear()
    registered.selectors.clear()
    return registered


def queue_length(average: int) -> Json:
    """Requests that wait, shared by all replicas: at most so many for each."""
    target = {"type": "AverageValue", "averageValue": str(average)}
    return {"type": "External", "external": {"metric": {"name": QUEUE}, "target": target}}


def autoscaler(metric: Json, most: int = 5) -> Json:
    """As a user writes it, but without the minutes that a real one waits before it goes down."""
    at_once: Json = {"stabilizationWindowSeconds": 0}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "llama"},
        "spec": {
            "scaleTargetRef": {
                "apiVersion": "tonnage.dev/v1alpha1",
                "kind": "InferenceDeployment",
                "name": "llama",
            },
            "minReplicas": 1,
            "maxReplicas": most,
            "metrics": [metric],
            "behavior": {"scaleUp": at_once, "scaleDown": at_once},
        },
    }


def llama(**spec: Any) -> Json:
    return inference("llama", "llama-3.1-8b", max_model_len=8192, **spec)


def counts(status: Json) -> tuple[int, int, int]:
    """Wanted, existing and ready replicas."""
    return status["desiredReplicas"], status["replicas"], status["readyReplicas"]


def serves(want: int) -> Predicate:
    """A predicate on a status: so many replicas are wanted, exist and are ready."""
    return lambda status: counts(status) == (want, want, want) and has("Ready")(status)


def sees(want: int) -> Predicate:
    """A predicate on an autoscaler: it counts so many replicas."""
    return lambda autoscaler: autoscaler.get("status", {}).get("currentReplicas") == want


def has_replicas(want: int) -> Predicate:
    """A predicate on a workload: its spec asks for so many replicas."""
    return lambda workload: workload["spec"]["replicas"] == want


def wrote_to_the_object(admin: Admin, mark: int) -> list[str]:
    """Writes of the operator to InferenceDeployments, without those to the status."""
    writes = admin.requests(USER, verbs=("create", "update", "patch", "delete"), since=mark)
    return [
        event["requestURI"]
        for event in writes
        if event["objectRef"]["resource"] == "inferencedeployments"
        and event["objectRef"].get("subresource") != "status"
    ]


def test_a_queue_scales_from_one_to_three_and_back(
    fleet: UseFleet, user: User, metrics: MetricsApi, admin: Admin
) -> None:
    fleet("tiny")
    mark = admin.audit_mark()
    user.apply(llama())
    user.wait_ready("llama", timeout=SLOW)
    user.forget("llama")  # the autoscaler writes its spec from here on
    metrics.external[QUEUE] = 10
    admin.apply(autoscaler(queue_length(10)))
    # The first autoscaler waits until the controller manager has discovered the kind.
    admin.wait_for(HPA, "llama", holds("ScalingActive"), timeout=SLOW)
    for waiting, want in ((30, 3), (10, 1)):
        metrics.external[QUEUE] = waiting
        status = user.wait("llama", serves(want), timeout=SLOW, why=f"{want} replicas to be ready")
        assert status["placements"][0]["replicas"] == want
        admin.wait_for(HPA, "llama", sees(want), timeout=SLOW)
    assert wrote_to_the_object(admin, mark) == []


def test_groups_of_two_nodes_scale_by_leaders(
    fleet: UseFleet,
    user: User,
    metrics: MetricsApi,
    admin: Admin,
    control_plane: Stack,
    tmp_path: Path,
) -> None:
    """The average of the pods is that of the leaders: by the workers too, one of two replicas with
    half the load would not be too many."""
    fleet({"groups": [connected_h100s(4)]})
    with LeaderWorkerSetController(admin, tmp_path / "lws", control_plane.layout.pki):
        user.apply(inference("llama", "deepseek-v3"))
        user.wait_ready("llama", timeout=SLOW)
        user.forget("llama")
        (body,) = user.children("leaderworkersets", "llama")
        name = body["metadata"]["name"]
        metrics.external[QUEUE] = 20
        admin.apply(autoscaler(queue_length(10), most=2))
        user.wait("llama", serves(2), timeout=SLOW)
        admin.wait_for("leaderworkersets", name, has_replicas(2), timeout=SLOW)
        admin.wait_for(HPA, "llama", sees(2), timeout=SLOW)
        metrics.per_pod["vllm_num_requests_running"] = 2
        target = {"type": "AverageValue", "averageValue": "4"}
        metric = {"metric": {"name": "vllm_num_requests_running"}, "target": target}
        admin.apply(autoscaler({"type": "Pods", "pods": metric}, most=2))
        user.wait("llama", serves(1), timeout=SLOW)
        admin.wait_for("leaderworkersets", name, has_replicas(1), timeout=SLOW)
        admin.wait_for(HPA, "llama", sees(1), timeout=SLOW)
        assert metrics.selectors == {SELECTOR}
        clear(admin)


def test_an_hpa_target_above_the_capacity_causes_no_writes(
    fleet: UseFleet, user: User, metrics: MetricsApi, admin: Admin
) -> None:
    fleet({"groups": [{"name": "mi300x", "count": 1, "accelerator": "mi300x", "gpusPerNode": 3}]})
    user.apply(llama())
    user.wait_ready("llama", timeout=SLOW)
    user.forget("llama")
    metrics.external[QUEUE] = 50
    admin.apply(autoscaler(queue_length(10)))
    status = user.wait("llama", lambda status: counts(status) == (5, 3, 3), timeout=SLOW)
    assert condition(status, "Placed")["reason"] == "InsufficientGPUs"
    assert condition(status, "Ready")["status"] == "False"
    user.await_quiet()
    before = user.get("llama")["metadata"]
    enough = metrics.asked + 10
    admin.until(
        "the autoscaler to read ten times more", lambda: metrics.asked >= enough, timeout=SLOW
    )
    after = user.get("llama")["metadata"]
    assert (after["generation"], after["resourceVersion"]) == (
        before["generation"],
        before["resourceVersion"],
    )
    metrics.external[QUEUE] = 20
    user.wait("llama", serves(2), timeout=SLOW)


def test_pod_metrics_select_the_pods_of_the_object(
    fleet: UseFleet, user: User, metrics: MetricsApi, admin: Admin
) -> None:
    fleet("tiny")
    user.apply(llama())
    user.apply(inference("other", "llama-3.1-8b", max_model_len=8192, replicas=2))
    user.wait_ready("llama", timeout=SLOW)
    user.wait_ready("other", timeout=SLOW)
    user.forget("llama")
    metrics.per_pod["vllm_num_requests_running"] = 8
    target = {"type": "AverageValue", "averageValue": "4"}
    metric = {"metric": {"name": "vllm_num_requests_running"}, "target": target}
    admin.apply(autoscaler({"type": "Pods", "pods": metric}, most=2))
    user.wait("llama", serves(2), timeout=SLOW)
    assert metrics.selectors == {SELECTOR}


def test_without_spec_replicas_the_autoscaler_reports_the_missing_field(
    fleet: UseFleet, user: User, metrics: MetricsApi, admin: Admin
) -> None:
    fleet("tiny")
    manifest = llama()
    del manifest["spec"]["replicas"]
    user.apply(manifest)
    user.wait_ready("llama", timeout=SLOW)
    metrics.external[QUEUE] = 20
    admin.apply(autoscaler(queue_length(10)))
    hpa = admin.wait_for(HPA, "llama", holds("AbleToScale", "False"), timeout=SLOW)
    able_to_scale = condition(hpa["status"], "AbleToScale")
    assert able_to_scale["reason"] == "FailedGetScale"
    assert 'the spec replicas field ".spec.replicas" does not exist' in able_to_scale["message"]
    user.apply(llama())
    user.forget("llama")
    user.wait("llama", serves(2), timeout=SLOW)
