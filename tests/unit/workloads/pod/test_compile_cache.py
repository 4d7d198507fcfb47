"""Compiled kernels and graphs on a claim."""

from typing import Any

import pytest

from tests.golden.render.inputs import (
    container_of,
    make_deployment,
    make_option,
    make_spec,
    pod_of,
)
from tonnage.api.parse import InvalidSpecError
from tonnage.engines.errors import PodTemplateError
from tonnage.engines.inputs import RenderSettings
from tonnage.reconcile.observation.volumes import claims_of
from tonnage.workloads.pod.pool_check import explain_templates
from tonnage.workloads.pod.template import check_template

CLAIM = {"persistentVolumeClaim": {"claimName": "kernels"}}


def environment_of(accelerator: str = "mi300x", **engine: Any) -> dict[str, str]:
    spec = make_spec(engine={"compileCache": CLAIM, **engine})
    container = container_of(make_deployment(spec, make_option(accelerator)))
    return {one["name"]: one["value"] for one in container["env"] if "value" in one}


def test_what_is_compiled_is_written_to_the_claim_and_downloads_are_not() -> None:
    deployment = make_deployment(make_spec(engine={"compileCache": CLAIM}))
    (volume,) = (one for one in pod_of(deployment)["volumes"] if one["name"] == "compile-cache")
    assert volume == {"name": "compile-cache", "persistentVolumeClaim": {"claimName": "kernels"}}
    mounts = container_of(deployment)["volumeMounts"]
    assert {"name": "compile-cache", "mountPath": "/compile-cache"} in mounts
    assert {"name": "cache", "mountPath": "/cache"} in mounts
    variables = environment_of()
    names = ("HOME", "XDG_CACHE_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR")
    assert all(variables[name].startswith("/compile-cache/mi300x-") for name in names)
    assert variables["HF_HOME"] == "/cache/huggingface"


def test_each_image_and_each_accelerator_has_a_folder_of_its_own() -> None:
    folders = {
        environment_of("mi300x")["HOME"],
        environment_of("mi355x")["HOME"],
        environment_of("mi300x", vllm={"version": "v0.31.0"})["HOME"],
        environment_of("mi300x", vllm={"image": "registry.example.com/vllm:mine"})["HOME"],
    }
    assert len(folders) == 4
    assert environment_of("mi300x")["HOME"] in folders, "the same in every pod"


def test_the_users_variables_win() -> None:
    variables = environment_of(vllm={"env": [{"name": "TRITON_CACHE_DIR", "value": "/scratch"}]})
    assert variables["TRITON_CACHE_DIR"] == "/scratch"


def test_its_zone_counts_in_placement() -> None:
    assert claims_of(make_spec(engine={"compileCache": CLAIM})) == {"kernels"}


OF_MODEL = {
    "model": {
        "source": {"huggingFace": {"repo": "org/m"}},
        "cache": {"persistentVolumeClaim": {"claimName": "kernels"}},
    }
}
OF_SOURCE = {
    "model": {
        "source": {
            "persistentVolumeClaim": {"claimName": "kernels", "facts": {"inline": {"config": {}}}}
        }
    }
}
OF_ADAPTER = {
    "lora": {
        "adapters": [
            {"name": "a", "source": {"persistentVolumeClaim": {"claimName": "kernels"}}, "rank": 8}
        ]
    }
}


@pytest.mark.parametrize("other", [OF_MODEL, OF_SOURCE, OF_ADAPTER])
def test_a_claim_that_pods_mount_read_only_is_refused(other: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match=r"compileCache.*claimName: kernels is the claim of"):
        make_spec(engine={"compileCache": CLAIM}, **other)


@pytest.mark.parametrize("name", ["", "UPPER", "a/b", "../kernels"])
def test_what_is_no_name_of_a_claim_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"compileCache.persistentVolumeClaim.claimName"):
        make_spec(engine={"compileCache": {"persistentVolumeClaim": {"claimName": name}}})


VOLUME = {"volumes": [{"name": "compile-cache", "emptyDir": {}}]}
MOUNT = {
    "volumes": [{"name": "mine", "emptyDir": {}}],
    "containers": [
        {"name": "vllm", "volumeMounts": [{"name": "mine", "mountPath": "/compile-cache/"}]}
    ],
}


@pytest.mark.parametrize("pod", [VOLUME, MOUNT])
def test_a_podtemplate_that_clashes_is_refused_only_with_the_cache(pod: dict[str, Any]) -> None:
    check_template(make_spec(podTemplate={"spec": pod}))
    with pytest.raises(PodTemplateError, match=r"that of spec.engine.compileCache"):
        check_template(make_spec(podTemplate={"spec": pod}, engine={"compileCache": CLAIM}))
    declared = {"nodeSelector": {"a": "b"}, "podTemplate": {"spec": pod}}
    pool = make_option(declared=declared).pool
    assert explain_templates(make_spec(), pool, RenderSettings()) is None
    problem = explain_templates(make_spec(engine={"compileCache": CLAIM}), pool, RenderSettings())
    assert problem is not None
    assert problem.startswith(f"AcceleratorPool {pool.name}: spec.podTemplate.spec.")
