"""Disk of the node for the caches and weights of a replica."""

from typing import Any

import pytest

from tests.golden.render.inputs import (
    GIB,
    container_of,
    make_checkpoint,
    make_deployment,
    make_option,
    make_spec,
    pod_of,
)

REQUEST = "ephemeral-storage"


def disk_of(
    *, size: int | None = 131 * GIB, option: Any = None, **fields: Any
) -> tuple[str | None, Any]:
    """What the container requests, and the emptyDir of the cache."""
    deployment = make_deployment(make_spec(**fields), option, checkpoint=make_checkpoint(size))
    volumes = {volume["name"]: volume for volume in pod_of(deployment)["volumes"]}
    cache = volumes["cache"]["emptyDir"] if "cache" in volumes else None
    return container_of(deployment)["resources"]["requests"].get(REQUEST), cache


def mounted_at(path: str) -> dict[str, Any]:
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "weights"}}
    mount = {"name": "disk", "mountPath": path}
    return {"spec": {"volumes": [volume], "volumeMounts": [mount]}}


def facts(**fields: Any) -> dict[str, Any]:
    return {"source": {"configMap": {"name": "facts", **fields}}}


WITHOUT_WEIGHTS = ("8Gi", {"sizeLimit": "16Gi"})


@pytest.mark.parametrize(
    ("gib", "want"),
    [
        pytest.param(2.5, ("12Gi", {"sizeLimit": "24Gi"}), id="1B"),
        pytest.param(131.4, ("140Gi", {"sizeLimit": "280Gi"}), id="70B"),
        pytest.param(132, ("140Gi", {"sizeLimit": "280Gi"}), id="at a step"),
        pytest.param(1016, ("1Ti", {"sizeLimit": "2Ti"}), id="as the API server writes it"),
    ],
)
def test_the_disk_follows_from_the_weights(gib: float, want: Any) -> None:
    assert disk_of(size=int(gib * GIB)) == want
    assert disk_of(size=int(gib * GIB), option=make_option(tensor=8)) == want, "shared by its GPUs"


def test_without_a_known_size_there_is_no_limit() -> None:
    request, cache = disk_of(size=None)
    assert request is not None
    assert request != WITHOUT_WEIGHTS[0]
    assert cache == {}


@pytest.mark.parametrize(
    "fields",
    [
        {
            "model": {
                "source": {
                    "persistentVolumeClaim": {
                        "claimName": "weights",
                        "facts": {"configMap": {"name": "facts"}},
                    }
                }
            }
        },
        {"model": facts(loadFrom="/models/llama"), "template": mounted_at("/models")},
        {"model": facts(loadFrom="s3://models/llama")},
        {"template": mounted_at("/cache/huggingface/")},
        {
            "engine": {"vllm": {"extraArgs": ["--download-dir=/data"]}},
            "template": mounted_at("/data"),
        },
        {"engine": {"vllm": {"extraArgs": ["--download-dir", "/data"]}}},
        {"engine": {"vllm": {"env": [{"name": "HF_HOME", "value": "/data"}]}}},
    ],
)
def test_weights_that_are_not_downloaded_to_the_cache_need_no_disk(fields: dict[str, Any]) -> None:
    assert disk_of(**fields) == WITHOUT_WEIGHTS


def test_a_variable_of_the_pool_moves_the_download() -> None:
    declared = {"nodeSelector": {"pool": "a"}, "env": [{"name": "HF_HUB_CACHE", "value": "/data"}]}
    assert disk_of(option=make_option(declared=declared)) == WITHOUT_WEIGHTS


@pytest.mark.parametrize("model", [facts(loadFrom="acme/llama"), facts()])
def test_a_repository_that_facts_name_is_downloaded(model: dict[str, Any]) -> None:
    assert disk_of(model=model) == ("140Gi", {"sizeLimit": "280Gi"})


@pytest.mark.parametrize("path", ["/cache", "/cache/", "//cache"])
def test_a_volume_at_the_path_of_the_cache_takes_no_disk_of_the_node(path: str) -> None:
    assert disk_of(template=mounted_at(path)) == (None, None)


def patch_at(path: str) -> dict[str, Any]:
    """A podTemplate that mounts a volume there."""
    volume = {"name": "disk", "persistentVolumeClaim": {"claimName": "weights"}}
    vllm = {"name": "vllm", "volumeMounts": [{"name": "disk", "mountPath": path}]}
    return {"spec": {"volumes": [volume], "containers": [vllm]}}


@pytest.mark.parametrize(
    ("path", "want"), [("/cache", (None, None)), ("/cache/huggingface", WITHOUT_WEIGHTS)]
)
def test_a_pod_template_of_a_user_or_a_pool_mounts_the_cache(path: str, want: Any) -> None:
    assert disk_of(podTemplate=patch_at(path)) == want
    declared = {"nodeSelector": {"pool": "a"}, "podTemplate": patch_at(path)}
    assert disk_of(option=make_option(declared=declared)) == want


@pytest.mark.parametrize("path", ["/cache/huggingface-old", "/data"])
def test_another_volume_changes_nothing(path: str) -> None:
    assert disk_of(template=mounted_at(path)) == ("140Gi", {"sizeLimit": "280Gi"})


@pytest.mark.parametrize("kind", ["requests", "limits"])
def test_the_users_request_stays(kind: str) -> None:
    template = {"spec": {"resources": {kind: {REQUEST: "50Gi"}}}}
    patch = {"containers": [{"name": "vllm", "resources": {kind: {REQUEST: "50Gi"}}}]}
    want = "50Gi" if kind == "requests" else None
    assert disk_of(template=template)[0] == want
    assert disk_of(podTemplate={"spec": patch})[0] == want
