"""A team deploys models with Argo CD: its real controllers and a real Git repository."""

from __future__ import annotations

from typing import Any

from e2e.delivery.availability.held_pods import let_come_up
from e2e.delivery.gitops.applications import KIND, Delivery
from e2e.doubles.watch_recorder import WatchRecorder, version_of
from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, argument, condition, has
from e2e.models import inference
from e2e.programs.argo_cd import NAMESPACE

FILE = "llama.yaml"


def llama(**spec: Any) -> Json:
    return inference("llama", "llama-3.1-8b", **spec)


def health(application: Json) -> str:
    return str(application.get("status", {}).get("health", {}).get("status", ""))


def test_a_commit_is_progressing_until_all_replicas_are_ready(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama(behaviour="never-ready")})
    recorder = WatchRecorder(user.admin, "infd", "llama", user.namespace)
    of_application = WatchRecorder(user.admin, KIND, delivery.name, NAMESPACE)
    with recorder, of_application:
        delivery.deploy()
        delivery.wait("Progressing")
        user.wait("llama", has("Ready", "False", "ContainersNotReady"))
        delivery.wait_message("llama", "ContainersNotReady: 0 of 1 replicas are ready; ")
        let_come_up(user, "llama")
        delivery.wait("Healthy")
    serves = next(
        version_of(version)
        for version in recorder.versions
        if condition(version.get("status") or {}, "Ready").get("status") == "True"
    )
    healthy = [version for version in of_application.versions if health(version) == "Healthy"]
    assert version_of(healthy[0]) > serves
    before = {
        health(version) for version in of_application.versions if version_of(version) < serves
    }
    assert "Progressing" in before


def test_out_of_memory_is_degraded_with_the_failed_plans_and_a_commit_fixes_it(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama(behaviour="out-of-memory")})
    delivery.deploy()
    delivery.wait("Degraded")
    shown_health = delivery.wait_message("llama", "OutOfMemory: no plan is left to try; ")
    assert shown_health["status"] == "Degraded"
    assert "its KV cache needs" in shown_health["message"]
    delivery.commit({FILE: llama()})
    delivery.wait("Healthy")


def test_a_commit_rolls_the_pods(fleet: UseFleet, user: User, delivery: Delivery) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama(max_model_len=8192)})
    delivery.deploy()
    delivery.wait("Healthy")
    first = user.pods("llama")
    delivery.commit({FILE: llama(max_model_len=16384)})
    delivery.wait("Healthy")
    (deployment,) = user.children("deployments", "llama")
    assert argument(deployment, "--max-model-len") == "16384"
    assert not first & user.pods("llama")


def test_removing_a_file_deletes_only_its_object_and_children(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    other = inference("qwen", "llama-3.1-8b")
    delivery.commit({FILE: llama(), "qwen.yaml": other})
    delivery.deploy()
    delivery.wait("Healthy")
    kept = user.pods("qwen")
    delivery.commit({FILE: None})
    delivery.wait("Healthy")
    assert_gone(user, "llama")
    assert user.pods("qwen") == kept
    delivery.withdraw()
    assert_gone(user, "qwen")


def assert_gone(user: User, name: str) -> None:
    user.admin.wait_gone("infd", name, timeout=240)
    for kind in ("deployments", "replicasets", "services", "pods"):
        user.admin.wait_items(
            kind,
            lambda applications: not applications,
            selector=f"tonnage.dev/inferencedeployment={name}",
            timeout=240,
            why=f"the {kind} of {name} to be gone",
        )
