"""Journeys of a team that delivers models by Argo CD: its real controllers, a real repository."""

from __future__ import annotations

from typing import Any

from e2e.delivery.applications import KIND, Delivery
from e2e.doubles.watch_recorder import Witness, version_of
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


def test_a_commit_is_progressing_while_it_loads_and_healthy_only_when_it_serves(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama(behaviour="slow-start")})
    witness = Witness(user.admin, "infd", "llama", user.namespace)
    of_application = Witness(user.admin, KIND, delivery.name, NAMESPACE)
    with witness, of_application:
        delivery.deploy()
        delivery.wait("Progressing")
        user.wait("llama", has("Ready", "False", "ContainersNotReady"))
        user.admin.until(
            "Argo CD to tell that the model loads",
            lambda: "loading a model" in delivery.told("llama").get("message", ""),
        )
        delivery.wait("Healthy")
    serves = next(
        version_of(found)
        for found in witness.versions
        if condition(found.get("status") or {}, "Ready").get("status") == "True"
    )
    healthy = [found for found in of_application.versions if health(found) == "Healthy"]
    assert version_of(healthy[0]) > serves
    before = {health(found) for found in of_application.versions if version_of(found) < serves}
    assert "Progressing" in before


def test_out_of_memory_is_degraded_with_what_was_tried_and_a_commit_mends_it(
    fleet: UseFleet, user: User, delivery: Delivery
) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama(behaviour="out-of-memory")})
    delivery.deploy()
    delivery.wait("Degraded")
    told = delivery.told("llama")
    assert told["status"] == "Degraded"
    assert told["message"].startswith("OutOfMemory: no plan is left to try; ")
    assert "its KV cache needs" in told["message"]
    delivery.commit({FILE: llama()})
    delivery.wait("Healthy")


def test_a_change_in_git_rolls_the_pods(fleet: UseFleet, user: User, delivery: Delivery) -> None:
    fleet("tiny")
    delivery.commit({FILE: llama(max_model_len=8192)})
    delivery.deploy()
    delivery.wait("Healthy")
    first = user.pods("llama")
    delivery.commit({FILE: llama(max_model_len=16384)})
    delivery.wait("Healthy")
    (found,) = user.children("deployments", "llama")
    assert argument(found, "--max-model-len") == "16384"
    assert not first & user.pods("llama")


def test_a_file_that_is_removed_takes_its_model_and_all_its_children_and_no_other(
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
    user.admin.wait_gone("infd", name)
    for kind in ("deployments", "replicasets", "services", "pods"):
        user.admin.wait_items(
            kind,
            lambda found: not found,
            selector=f"tonnage.dev/inferencedeployment={name}",
            timeout=60,
            why=f"the {kind} of {name} to be gone",
        )
