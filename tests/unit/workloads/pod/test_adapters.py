"""Adapters come into the pod before vLLM starts, at paths that have their revisions."""

import json
from typing import Any

import pytest

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec, pod_of
from tonnage.engines.inputs import RenderSettings

MODEL_CLAIM = {
    "claimName": "models",
    "path": "llama",
    "facts": {"inline": {"config": {}}},
}


def hub(name: str = "sql", **source: Any) -> dict[str, Any]:
    return {"name": name, "rank": 16, "source": {"huggingFace": {"repo": "acme/sql", **source}}}


def claim(name: str, claim_name: str, path: str = "") -> dict[str, Any]:
    source = {"claimName": claim_name, "path": path}
    return {"name": name, "rank": 16, "source": {"persistentVolumeClaim": source}}


def deployment(
    *adapters: dict[str, Any], lora: dict[str, Any] | None = None, **fields: Any
) -> dict[str, Any]:
    tensor = fields.pop("tensor", 1)
    settings = fields.pop("settings", None)
    spec = make_spec(lora={"adapters": list(adapters), **(lora or {})}, **fields)
    return make_deployment(spec, make_option(tensor=tensor), settings=settings)


def modules(rendered: dict[str, Any]) -> list[dict[str, str]]:
    arguments = container_of(rendered)["args"]
    start = arguments.index("--lora-modules") + 1
    return [json.loads(item) for item in arguments[start:] if item.startswith("{")]


@pytest.mark.parametrize(
    ("adapter", "want"),
    [
        (hub(), "/cache/adapters/acme--sql/main"),
        (hub(revision="v2"), "/cache/adapters/acme--sql/v2"),
        (hub(revision="refs/pr/1"), "/cache/adapters/acme--sql/refs--pr--1"),
        (claim("sql", "tuned"), "/adapters/tuned"),
        (claim("sql", "tuned", "sql/v1"), "/adapters/tuned/sql/v1"),
    ],
)
def test_the_path_names_the_repository_and_its_revision(adapter: dict[str, Any], want: str) -> None:
    (module,) = modules(deployment(adapter))
    assert module == {"name": "sql", "path": want, "base_model_name": "llama-70b"}


def test_a_repository_is_downloaded_at_its_revision_before_vllm_starts() -> None:
    token = {"name": "hf", "key": "token"}
    rendered = deployment(
        hub(revision="v2", tokenSecretRef=token), settings=RenderSettings("https://mirror/hub")
    )
    (download,) = pod_of(rendered)["initContainers"]
    assert download["args"] == ["acme/sql", "v2", "/cache/adapters/acme--sql/v2"]
    assert download["volumeMounts"] == [{"name": "cache", "mountPath": "/cache"}]
    variables = {variable["name"]: variable for variable in download["env"]}
    assert variables["HF_ENDPOINT"]["value"] == "https://mirror/hub"
    assert variables["HF_TOKEN"]["valueFrom"] == {"secretKeyRef": token}
    assert "HF_TOKEN" not in {variable["name"] for variable in container_of(rendered)["env"]}


def test_it_is_downloaded_although_the_model_is_on_a_volume() -> None:
    source = {"source": {"persistentVolumeClaim": MODEL_CLAIM}}
    rendered = deployment(hub(), model=source)
    (download,) = pod_of(rendered)["initContainers"]
    assert "HF_HUB_OFFLINE" not in {variable["name"] for variable in download["env"]}
    assert "HF_HUB_OFFLINE" in {variable["name"] for variable in container_of(rendered)["env"]}


def test_a_users_cache_volume_takes_the_adapters() -> None:
    mount = {"name": "disk", "mountPath": "/cache"}
    template = {
        "spec": {
            "containers": [{"name": "vllm", "volumeMounts": [mount]}],
            "volumes": [{"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}],
        }
    }
    (download,) = pod_of(deployment(hub(), podTemplate=template))["initContainers"]
    assert download["volumeMounts"] == [mount]


def test_each_claim_is_mounted_once_and_that_of_the_model_is_not_mounted_again() -> None:
    source = {"source": {"persistentVolumeClaim": MODEL_CLAIM}}
    rendered = deployment(
        claim("a", "tuned", "a"), claim("b", "tuned", "b"), claim("c", "models", "c"), model=source
    )
    claims = [
        volume["persistentVolumeClaim"]["claimName"]
        for volume in pod_of(rendered)["volumes"]
        if "persistentVolumeClaim" in volume
    ]
    assert claims == ["models", "tuned"]
    assert [module["path"] for module in modules(rendered)] == [
        "/adapters/tuned/a",
        "/adapters/tuned/b",
        "/models/c",
    ]


def memory_gib(rendered: dict[str, Any]) -> int:
    return int(container_of(rendered)["resources"]["requests"]["memory"].removesuffix("Gi"))


def test_each_worker_keeps_the_adapters_in_the_memory_of_the_host() -> None:
    def added(tensor: int, **lora: Any) -> int:
        adapted = deployment(lora={"maxRank": 64, **lora}, tensor=tensor)
        return memory_gib(adapted) - memory_gib(make_deployment(option=make_option(tensor=tensor)))

    # 70B: 80 layers x rank 64 x 2 bytes x (24,576 + 18,432 + 45,056 + 65,536 + ...) elements.
    one = added(1, maxCpuLoras=1)
    assert 1 <= one <= 2
    assert added(1, maxCpuLoras=16) > 8 * one
    assert added(4, maxCpuLoras=16) > 3 * added(1, maxCpuLoras=16)
    assert added(4, maxCpuLoras=16, targetModules=["qkv_proj"]) < added(4, maxCpuLoras=16)


def test_pods_have_a_label_for_each_adapter() -> None:
    labels = deployment(hub("sql"), hub("legal"))["spec"]["template"]["metadata"]["labels"]
    adapters = {key for key in labels if key.startswith("adapter.tonnage.dev/")}
    assert adapters == {"adapter.tonnage.dev/sql", "adapter.tonnage.dev/legal"}


def test_without_adapters_nothing_changes() -> None:
    plain = make_deployment()
    assert "initContainers" not in pod_of(plain)
    assert not any("lora" in argument for argument in container_of(plain)["args"])


LIVE = {"updates": "Live", "maxRank": 16, "maxCpuLoras": 8}


def live_deployment(*adapters: dict[str, Any], **fields: Any) -> dict[str, Any]:
    source = {"huggingFace": {"repo": "acme/llama"}}
    model = {"name": "llama-70b", "source": source}
    return deployment(*adapters, lora=LIVE, model=model, **fields)


def test_with_live_updates_the_pods_are_the_same_whatever_the_adapters() -> None:
    rendered = [
        live_deployment(hub(), claim("legal", "tuned", "v1")),
        live_deployment(claim("code", "tuned", "v2")),
    ]
    first, second = (pod_of(one) for one in rendered)
    assert first == second
    container = container_of(rendered[0])
    assert "--lora-modules" not in container["args"]
    assert "--max-cpu-loras=8" in container["args"]
    assert {"name": "VLLM_ALLOW_RUNTIME_LORA_UPDATING", "value": "True"} in container["env"]
    assert "initContainers" not in first


def test_with_live_updates_the_claims_are_mounted_in_an_order_of_their_own() -> None:
    first = pod_of(live_deployment(claim("a", "x"), claim("b", "y")))
    second = pod_of(live_deployment(claim("a", "y"), claim("b", "x")))
    assert first == second


def test_pods_with_live_updates_have_a_label_for_that_and_none_for_an_adapter() -> None:
    labels = live_deployment(hub())["spec"]["template"]["metadata"]["labels"]
    assert labels["tonnage.dev/lora-updates"] == "Live"
    assert not any(key.startswith("adapter.") for key in labels)
