"""The environment of the vLLM container."""

from typing import Any

import pytest

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.catalog.rules import Settings
from tonnage.render.model import RenderSettings


def environment_of(
    option: Any = None, settings: RenderSettings | None = None, **fields: Any
) -> dict[str, dict[str, Any]]:
    found = container_of(make_deployment(make_spec(**fields), option, settings=settings))["env"]
    by_name = {variable["name"]: variable for variable in found}
    assert len(by_name) == len(found), "server-side apply refuses a name that stands there twice"
    return by_name


def hub(**fields: Any) -> dict[str, Any]:
    return {"source": {"huggingFace": {"repo": "a/b", **fields}}}


VOLUME = {
    "source": {
        "persistentVolumeClaim": {"claimName": "m", "facts": {"configMap": {"name": "facts"}}}
    }
}


@pytest.mark.parametrize(
    ("accelerator", "want"),
    [
        pytest.param("mi300x", "1", id="gfx942"),
        pytest.param("mi355x", "1", id="gfx950"),
        pytest.param("mi210", None, id="gfx90a has no kernels of AITER"),
        pytest.param("h100-sxm-80gb", None, id="NVIDIA"),
    ],
)
def test_aiter_is_on_where_it_has_kernels(accelerator: str, want: str | None) -> None:
    found = environment_of(make_option(accelerator)).get("VLLM_ROCM_USE_AITER")
    assert (found and found["value"]) == want


def test_variables_of_compatibility_rules_reach_the_container() -> None:
    rules = Settings(env={"VLLM_ROCM_USE_AITER": "0", "VLLM_ROCM_USE_AITER_MLA": "0"})
    found = environment_of(make_option(rules=rules))
    assert found["VLLM_ROCM_USE_AITER"]["value"] == "0", "a rule is stronger than a default"
    assert found["VLLM_ROCM_USE_AITER_MLA"]["value"] == "0"


def test_the_user_has_the_last_word_on_variables_of_rules() -> None:
    option = make_option(rules=Settings(env={"VLLM_ROCM_USE_AITER": "0"}))
    given = {"vllm": {"env": [{"name": "VLLM_ROCM_USE_AITER", "value": "1"}]}}
    assert environment_of(option, engine=given)["VLLM_ROCM_USE_AITER"]["value"] == "1"


def test_all_that_is_kept_on_disk_lies_on_the_cache_volume() -> None:
    found = environment_of()
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"):
        assert found[name]["value"].startswith("/cache"), name


def test_the_token_is_a_reference_and_never_a_value() -> None:
    found = environment_of(model=hub(tokenSecretRef={"name": "hf", "key": "t"}))
    assert found["HF_TOKEN"] == {
        "name": "HF_TOKEN",
        "valueFrom": {"secretKeyRef": {"name": "hf", "key": "t"}},
    }
    assert "HF_TOKEN" not in environment_of(model=hub())


@pytest.mark.parametrize(
    ("model", "endpoint", "want"),
    [
        pytest.param(hub(), None, {}, id="public Hub"),
        pytest.param(hub(), "http://mirror", {"HF_ENDPOINT": "http://mirror"}, id="mirror"),
        pytest.param(
            hub(), "http://u:pass@mirror/x", {"HF_ENDPOINT": "http://mirror/x"}, id="credentials"
        ),
        pytest.param(VOLUME, "http://mirror", {"HF_HUB_OFFLINE": "1"}, id="volume"),
    ],
)
def test_where_models_are_loaded_from(
    model: dict[str, Any], endpoint: str | None, want: dict[str, str]
) -> None:
    found = environment_of(settings=RenderSettings(endpoint), model=model)
    names = {"HF_ENDPOINT", "HF_HUB_OFFLINE"}
    assert {name: found[name]["value"] for name in names & found.keys()} == want


def test_the_user_wins_over_the_pool_and_the_pool_over_us() -> None:
    declared = {
        "nodeSelector": {"a": "b"},
        "env": [
            {"name": "VLLM_ROCM_USE_AITER", "value": "pool"},
            {"name": "HF_HOME", "value": "pool"},
        ],
    }
    given = [{"name": "HF_HOME", "value": "first"}, {"name": "HF_HOME", "value": "user"}]
    found = environment_of(make_option(declared=declared), engine={"vllm": {"env": given}})
    assert found["VLLM_ROCM_USE_AITER"]["value"] == "pool"
    assert found["HF_HOME"]["value"] == "user"
    assert list(found)[-1] == "HF_HOME", "the user's stand last, so that they may refer to ours"


def test_vllm_waits_as_long_as_the_startup_probe_but_gives_up_first() -> None:
    container = container_of(make_deployment())
    (patience,) = (
        int(variable["value"])
        for variable in container["env"]
        if variable["name"] == "VLLM_ENGINE_READY_TIMEOUT_S"
    )
    probe = container["startupProbe"]
    assert patience < probe["failureThreshold"] * probe["periodSeconds"] <= patience + 70
