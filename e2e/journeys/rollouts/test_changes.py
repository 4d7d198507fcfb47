"""Changes of the spec, invalid specs, and children that other clients change."""

from __future__ import annotations

import pytest

from e2e.harness.failure import HarnessError
from e2e.harness.rest import ApiError, Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, argument, condition, container, has
from e2e.models import inference, inline_source


def test_a_longer_context_is_planned_again_and_rolled_out(fleet: UseFleet, user: User) -> None:
    fleet("mixed")
    spec = {"accelerators": ["mi300x"]}
    user.apply(inference("llama-70b", max_model_len=8192, placement=spec))
    assert user.wait_ready("llama-70b")["placements"][0]["tensorParallelSize"] == 1
    first = user.pods("llama-70b")
    user.apply(inference("llama-70b", max_model_len=131072, placement=spec))
    assert user.wait_ready("llama-70b")["placements"][0]["tensorParallelSize"] == 2
    (deployment,) = user.children("deployments", "llama-70b")
    assert argument(deployment, "--max-model-len") == "131072"
    assert not first & user.pods("llama-70b")


def test_a_change_that_needs_no_restart_restarts_no_pod(fleet: UseFleet, user: User) -> None:
    fleet("mixed")
    user.apply(inference("llama-70b"))
    user.wait_ready("llama-70b")
    first = user.pods("llama-70b")
    (before,) = user.children("deployments", "llama-70b")
    workload = {"maxModelLen": 32768, "concurrency": 4, "outputTokens": 300}
    user.apply(inference("llama-70b", workload=workload, rollout={"strategy": "Recreate"}))
    user.wait_ready("llama-70b")
    assert user.pods("llama-70b") == first
    (deployment,) = user.children("deployments", "llama-70b")
    assert deployment["spec"]["template"] == before["spec"]["template"]


def test_a_rollout_on_a_full_pool_does_not_surge(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    spec: Json = {"placement": {"accelerators": ["mi300x"]}, "replicas": 2}
    user.apply(inference("llama-405b", "llama-3.1-405b-fp8", **spec))
    user.wait_ready("llama-405b")
    first = user.pods("llama-405b")
    user.apply(inference("llama-405b", "llama-3.1-405b-fp8", max_model_len=16384, **spec))
    user.wait_ready("llama-405b")
    assert not first & user.pods("llama-405b")


REFUSED_BY_THE_API_SERVER: dict[str, tuple[Json, str]] = {
    "no source": ({"model": {"source": {}}}, "exactly one of"),
    "two sources": (
        {"model": {"source": {"configMap": {"name": "a"}, **inline_source("llama-3.1-8b")}}},
        "exactly one of",
    ),
    "negative replicas": ({"replicas": -1}, "spec.replicas"),
    "unknown policy": ({"placement": {"policy": "Cheapest"}}, "LowestCost"),
    "no length": ({"workload": {}}, "maxModelLen"),
    "a length of nothing": ({"workload": {"maxModelLen": 0}}, "maxModelLen"),
    "utilization above one": (
        {"engine": {"vllm": {"gpuMemoryUtilization": 1.2}}},
        "gpuMemoryUtilization",
    ),
}


@pytest.mark.parametrize("case", REFUSED_BY_THE_API_SERVER)
def test_the_api_server_refuses_a_bad_spec_with_a_clear_message(user: User, case: str) -> None:
    spec, words = REFUSED_BY_THE_API_SERVER[case]
    with pytest.raises(ApiError, match=words):
        user.apply(inference("bad", **spec))


def test_the_api_server_refuses_a_name_that_cannot_be_a_label(user: User) -> None:
    with pytest.raises(ApiError, match="DNS label"):
        user.apply(inference("llama-3.3"))


def broken_config(**changes: object) -> Json:
    source = inline_source("llama-3.1-8b")
    source["inline"]["config"] |= changes
    source["inline"].pop("weightsBytes", None)
    return {"model": {"source": source}}


REFUSED_BY_THE_OPERATOR: dict[str, tuple[Json, str]] = {
    "an unknown accelerator": ({"placement": {"accelerators": ["mi3000"]}}, "InvalidSpec"),
    "longer than the model": ({"workload": {"maxModelLen": 999999}}, "InvalidSpec"),
    "a flag that the operator sets": (
        {"engine": {"vllm": {"extraArgs": ["--tensor-parallel-size=2"]}}},
        "InvalidSpec",
    ),
    "a config without layers": (broken_config(num_hidden_layers=-3), "InvalidModel"),
    "an unknown dtype": (broken_config(torch_dtype="float13", dtype="float13"), "InvalidModel"),
    "not a decoder": (
        broken_config(architectures=["BertModel"], model_type="bert"),
        "UnsupportedArchitecture",
    ),
    "a ConfigMap that is not there": (
        {"model": {"source": {"configMap": {"name": "missing"}}}},
        "ModelNotFound",
    ),
}


@pytest.mark.parametrize("case", REFUSED_BY_THE_OPERATOR)
def test_an_invalid_spec_is_reported_keeps_children_and_recovers(
    fleet: UseFleet, user: User, case: str
) -> None:
    fleet("tiny")
    changes, reason = REFUSED_BY_THE_OPERATOR[case]
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    first = user.pods("llama")
    user.apply(inference("llama", "llama-3.1-8b", **changes))
    status = user.wait("llama", has("Accepted", "False", reason))
    assert condition(status, "Accepted")["message"]
    assert condition(status, "Ready")["status"] == "False"
    assert user.pods("llama") == first
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    assert user.pods("llama") == first


def test_a_child_that_was_edited_scaled_or_deleted_is_repaired(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    (deployment,) = user.children("deployments", "llama")
    name, image = deployment["metadata"]["name"], container(deployment)["image"]

    user.admin.kubectl("-n", user.namespace, "set", "image", f"deploy/{name}", "vllm=nginx")
    user.admin.wait_for("deployments", name, lambda one: container(one)["image"] == image)
    user.admin.kubectl("-n", user.namespace, "scale", f"deploy/{name}", "--replicas=3")
    user.admin.wait_for("deployments", name, lambda one: one["spec"]["replicas"] == 1)
    user.admin.kubectl("-n", user.namespace, "rollout", "pause", f"deploy/{name}")
    user.admin.wait_for("deployments", name, lambda one: not one["spec"].get("paused"))
    user.admin.delete("deployments", name, timeout=None)
    uid = deployment["metadata"]["uid"]
    user.admin.wait_for("deployments", name, lambda one: one["metadata"]["uid"] != uid)
    user.admin.delete("services", "llama", timeout=None)
    user.admin.wait_for("services", "llama", lambda one: "deletionTimestamp" not in one["metadata"])
    user.wait_ready("llama")


def test_a_foreign_object_of_the_same_name_is_left_alone_and_reported(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
    (deployment,) = user.children("deployments", "llama")
    name = deployment["metadata"]["name"]
    user.admin.delete("infd", "llama")
    user.forget("llama")
    user.admin.wait_gone("deployments", name)
    pod = {"containers": [{"name": "web", "image": "nginx"}]}
    foreign = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "web"}},
            "template": {"metadata": {"labels": {"app": "web"}}, "spec": pod},
        },
    }
    (before,) = user.admin.apply(foreign)
    user.apply(inference("llama", "llama-3.1-8b"))
    # Before that, the conflict may be with a Service of the former object.
    user.wait(
        "llama",
        lambda status: (
            has("Accepted", "False", "NameConflict")(status)
            and name in condition(status, "Accepted")["message"]
        ),
    )
    after = user.admin.get("deployments", name)
    assert after is not None
    assert after["spec"] == before["spec"]
    assert "ownerReferences" not in after["metadata"]
    user.admin.delete("deployments", name)
    user.wait_ready("llama")


def test_ten_megabytes_of_yaml_are_refused_and_affect_no_object(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    source = inline_source("llama-3.1-8b")
    source["inline"]["config"]["padding"] = "x" * 10_000_000
    with pytest.raises((ApiError, HarnessError)):
        user.apply(inference("huge", model={"source": source}))
    user.apply(inference("llama", "llama-3.1-8b"))
    user.wait_ready("llama")
