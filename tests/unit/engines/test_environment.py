"""The environment of the vLLM container."""

from typing import Any

import pytest

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.catalog.rules import Settings
from tonnage.engines.inputs import RenderSettings


def environment_of(
    option: Any = None, settings: RenderSettings | None = None, **fields: Any
) -> dict[str, dict[str, Any]]:
    variables = container_of(make_deployment(make_spec(**fields), option, settings=settings))["env"]
    by_name = {variable["name"]: variable for variable in variables}
    assert len(by_name) == len(variables), "server-side apply refuses a duplicate name"
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
    variable = environment_of(make_option(accelerator)).get("VLLM_ROCM_USE_AITER")
    assert (variable and variable["value"]) == want


def test_variables_of_compatibility_rules_reach_the_container() -> None:
    rules = Settings(env={"VLLM_ROCM_USE_AITER": "0", "VLLM_ROCM_USE_AITER_MLA": "0"})
    environment = environment_of(make_option(rules=rules))
    assert environment["VLLM_ROCM_USE_AITER"]["value"] == "0", "a rule overrides a default"
    assert environment["VLLM_ROCM_USE_AITER_MLA"]["value"] == "0"


def test_the_user_overrides_variables_of_rules() -> None:
    option = make_option(rules=Settings(env={"VLLM_ROCM_USE_AITER": "0"}))
    engine = {"vllm": {"env": [{"name": "VLLM_ROCM_USE_AITER", "value": "1"}]}}
    assert environment_of(option, engine=engine)["VLLM_ROCM_USE_AITER"]["value"] == "1"


def test_all_caches_are_on_the_cache_volume() -> None:
    environment = environment_of()
    for name in ("HOME", "XDG_CACHE_HOME", "HF_HOME", "VLLM_CACHE_ROOT", "TRITON_CACHE_DIR"):
        assert environment[name]["value"].startswith("/cache"), name


def test_the_token_is_a_reference_and_never_a_value() -> None:
    environment = environment_of(model=hub(tokenSecretRef={"name": "hf", "key": "t"}))
    assert environment["HF_TOKEN"] == {
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
    environment = environment_of(settings=RenderSettings(endpoint), model=model)
    names = {"HF_ENDPOINT", "HF_HUB_OFFLINE"}
    assert {name: environment[name]["value"] for name in names & environment.keys()} == want


def test_the_user_overrides_the_pool_and_the_pool_overrides_the_operator() -> None:
    declared = {
        "nodeSelector": {"a": "b"},
        "env": [
            {"name": "VLLM_ROCM_USE_AITER", "value": "pool"},
            {"name": "HF_HOME", "value": "pool"},
        ],
    }
    user = [{"name": "HF_HOME", "value": "first"}, {"name": "HF_HOME", "value": "user"}]
    environment = environment_of(make_option(declared=declared), engine={"vllm": {"env": user}})
    assert environment["VLLM_ROCM_USE_AITER"]["value"] == "pool"
    assert environment["HF_HOME"]["value"] == "user"
    assert list(environment)[-1] == "HF_HOME", (
        "the user's variables come last, so that they may refer to others"
    )


def test_vllms_start_timeout_ends_just_before_the_startup_probe() -> None:
    container = container_of(make_deployment())
    (seconds,) = (
        int(variable["value"])
        for variable in container["env"]
        if variable["name"] == "VLLM_ENGINE_READY_TIMEOUT_S"
    )
    probe = container["startupProbe"]
    assert seconds < probe["failureThreshold"] * probe["periodSeconds"] <= seconds + 70
