"""The arguments of `vllm serve`."""

from typing import Any

import pytest

from tests.golden.render.inputs import (
    container_of,
    make_deployment,
    make_option,
    make_spec,
)
from tonnage.catalog.rules import Settings
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.render.errors import ReservedArgumentError
from tonnage.render.template import check_template


def arguments_of(option: Any = None, **fields: Any) -> list[str]:
    found = container_of(make_deployment(make_spec(**fields), option))["args"]
    assert isinstance(found, list)
    return found


def source(**fields: Any) -> dict[str, Any]:
    return {"source": fields}


FACTS = {"configMap": {"name": "facts"}}


@pytest.mark.parametrize(
    ("model", "want"),
    [
        pytest.param(source(huggingFace={"repo": "a/b"}), "a/b", id="repository"),
        pytest.param(
            source(inline={"config": {}, "loadFrom": "/weights/x"}), "/weights/x", id="load from"
        ),
        pytest.param(
            {"name": "c/d", **source(configMap={"name": "facts"})}, "c/d", id="served name"
        ),
        pytest.param(source(configMap={"name": "facts"}), "llama-70b", id="object's name"),
        pytest.param(
            source(persistentVolumeClaim={"claimName": "m", "path": "x/y", "facts": FACTS}),
            "/models/x/y",
            id="folder of a volume",
        ),
        pytest.param(
            source(persistentVolumeClaim={"claimName": "m", "facts": FACTS}),
            "/models",
            id="root of a volume",
        ),
    ],
)
def test_first_argument_is_what_vllm_loads(model: dict[str, Any], want: str) -> None:
    assert arguments_of(model=model)[0] == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({}, "--served-model-name=llama-70b", id="object's name"),
        pytest.param(
            {"model": {"name": "-x y", **source(huggingFace={"repo": "a/b"})}},
            "--served-model-name=-x y",
            id="a name that looks like a flag stays one value",
        ),
        pytest.param(
            {"model": {"name": "$(HF_TOKEN)", **source(huggingFace={"repo": "a/b"})}},
            "--served-model-name=$$(HF_TOKEN)",
            id="a name that looks like a variable is not expanded",
        ),
        pytest.param({}, "--port=8000", id="port"),
        pytest.param({}, "--max-model-len=32768", id="length"),
        pytest.param({"kvCacheDtype": "fp8"}, "--kv-cache-dtype=fp8", id="KV cache"),
        pytest.param({"quantization": "fp8"}, "--quantization=fp8", id="quantization"),
    ],
)
def test_what_was_asked_for_is_said(fields: dict[str, Any], want: str) -> None:
    assert want in arguments_of(**fields)


@pytest.mark.parametrize(
    ("settings", "want"),
    [
        ({"gpuMemoryUtilization": 0.9}, "--gpu-memory-utilization=0.9"),
        ({"maxNumSeqs": 64}, "--max-num-seqs=64"),
        ({"maxNumBatchedTokens": 4096}, "--max-num-batched-tokens=4096"),
        ({"enforceEager": True}, "--enforce-eager"),
    ],
)
def test_engine_settings_are_said(settings: dict[str, Any], want: str) -> None:
    assert want in arguments_of(engine={"vllm": settings})


@pytest.mark.parametrize(
    ("written", "want"),
    [
        ({}, ["--gpu-memory-utilization=0.88", "--max-num-seqs=512"]),
        ({"maxNumSeqs": 64}, ["--gpu-memory-utilization=0.88", "--max-num-seqs=64"]),
    ],
    ids=["nothing", "one of them"],
)
def test_what_tonnage_chose_stands_where_the_user_wrote_nothing(
    written: dict[str, Any], want: list[str]
) -> None:
    chosen = EngineAdjustments(gpu_memory_utilization=0.88, max_num_seqs=512)
    given = arguments_of(make_option(adjustments=chosen), engine={"vllm": written})
    knobs = ("--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens")
    assert [found for found in given if found.startswith(knobs)] == want


def test_defaults_of_vllm_are_left_to_vllm() -> None:
    flags = {argument.partition("=")[0] for argument in arguments_of()[1:]}
    assert flags == {
        "--served-model-name",
        "--port",
        "--shutdown-timeout",
        "--tensor-parallel-size",
        "--max-model-len",
    }


@pytest.mark.parametrize(
    ("revision", "want"), [("main", []), ("v1.0", ["--revision=v1.0"])], ids=["main", "pinned"]
)
def test_only_a_pinned_revision_is_passed_on(revision: str, want: list[str]) -> None:
    given = arguments_of(model=source(huggingFace={"repo": "a/b", "revision": revision}))
    assert [found for found in given if found.startswith("--revision")] == want


@pytest.mark.parametrize(
    ("tensor", "pipeline", "want"),
    [
        (1, 1, ["--tensor-parallel-size=1"]),
        (4, 2, ["--tensor-parallel-size=4", "--pipeline-parallel-size=2"]),
    ],
)
def test_degrees_of_the_placement(tensor: int, pipeline: int, want: list[str]) -> None:
    given = arguments_of(make_option(tensor=tensor, pipeline=pipeline))
    assert [found for found in given if "parallel" in found] == want


@pytest.mark.parametrize(
    ("version", "want"), [("v0.17.1", False), ("v0.18.0", True), ("v0.99.0", True)]
)
def test_an_old_release_that_cannot_drain_is_not_told_to(version: str, want: bool) -> None:
    given = arguments_of(engine={"vllm": {"version": version}})
    assert any(found.startswith("--shutdown-timeout") for found in given) is want


GRAPHS = '--compilation-config={"cudagraph_mode":"FULL_DECODE_ONLY"}'


@pytest.mark.parametrize(
    ("extra", "want"),
    [
        pytest.param([], [GRAPHS, "--block-size=1"], id="as the rules ask for"),
        pytest.param(["--block_size", "16"], [GRAPHS], id="the user gives it a value"),
        pytest.param(["--block-size=1"], [GRAPHS], id="not said twice"),
    ],
)
def test_arguments_of_compatibility_rules_stand_before_the_users(
    extra: list[str], want: list[str]
) -> None:
    option = make_option(rules=Settings(args=(GRAPHS, "--block-size=1")))
    spec = make_spec(engine={"vllm": {"extraArgs": extra}})
    found = container_of(make_deployment(spec, option))["args"]
    assert found[len(found) - len(want) - len(extra) :] == [*want, *extra]


def test_the_users_arguments_come_last_and_as_written() -> None:
    extra = ["--api-key", "$(KEY)", "; rm -rf /", "--host=::"]
    assert arguments_of(engine={"vllm": {"extraArgs": extra}})[-4:] == extra


@pytest.mark.parametrize(
    ("argument", "want_instead"),
    [
        pytest.param("--max-model-len", "spec.workload.maxModelLen", id="flag"),
        pytest.param("--max-model-len=8", "spec.workload.maxModelLen", id="with its value"),
        pytest.param("--max_model_len=8", "spec.workload.maxModelLen", id="underscores"),
        pytest.param("--max-model-l=8", "spec.workload.maxModelLen", id="abbreviated"),
        pytest.param("--tensor", "status.placements", id="abbreviated to a word"),
        pytest.param("-tp", "status.placements", id="short"),
        pytest.param("-dp=2", "spec.replicas", id="short with its value"),
        pytest.param("--shutdown-timeout=0", "grace period", id="the pod's lifetime"),
    ],
)
def test_arguments_that_the_plan_rests_on_are_refused(argument: str, want_instead: str) -> None:
    spec = make_spec(engine={"vllm": {"extraArgs": ["--seed=1", argument]}})
    with pytest.raises(ReservedArgumentError) as refused:
        check_template(spec)
    assert refused.value.field == "spec.engine.vllm.extraArgs[1]"
    assert argument in str(refused.value)
    assert want_instead in str(refused.value)


@pytest.mark.parametrize(
    "argument",
    [
        "--max-model-len-of-something-else",
        "--quantization-config={}",
        "--enable-expert-parallel",
        "--host=::",
        "-O3",
        "max-model-len",
        "--",
        "-",
        "",
    ],
)
def test_other_arguments_are_free(argument: str) -> None:
    check_template(make_spec(engine={"vllm": {"extraArgs": [argument]}}))
