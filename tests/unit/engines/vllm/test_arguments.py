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
from tonnage.engines.errors import ReservedArgumentError
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.workloads.pod.template import check_template


def arguments_of(option: Any = None, **fields: Any) -> list[str]:
    arguments = container_of(make_deployment(make_spec(**fields), option))["args"]
    assert isinstance(arguments, list)
    return arguments


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
def test_the_first_argument_is_the_model_that_vllm_loads(model: dict[str, Any], want: str) -> None:
    assert arguments_of(model=model)[0] == want


@pytest.mark.parametrize(
    ("fields", "want"),
    [
        pytest.param({}, "--served-model-name=llama-70b", id="object's name"),
        pytest.param(
            {"model": {"name": "-x y", **source(huggingFace={"repo": "a/b"})}},
            "--served-model-name=-x y",
            id="a name with the form of a flag stays one value",
        ),
        pytest.param(
            {"model": {"name": "$(HF_TOKEN)", **source(huggingFace={"repo": "a/b"})}},
            "--served-model-name=$$(HF_TOKEN)",
            id="a name with the form of a variable is not expanded",
        ),
        pytest.param({}, "--port=8000", id="port"),
        pytest.param({}, "--max-model-len=32768", id="length"),
        pytest.param({"kvCacheDtype": "fp8"}, "--kv-cache-dtype=fp8", id="KV cache"),
        pytest.param({"quantization": "fp8"}, "--quantization=fp8", id="quantization"),
    ],
)
def test_settings_of_the_spec_become_arguments(fields: dict[str, Any], want: str) -> None:
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
def test_engine_settings_become_arguments(settings: dict[str, Any], want: str) -> None:
    assert want in arguments_of(engine={"vllm": settings})


@pytest.mark.parametrize(
    ("user_settings", "want"),
    [
        ({}, ["--gpu-memory-utilization=0.88", "--max-num-seqs=512"]),
        ({"maxNumSeqs": 64}, ["--gpu-memory-utilization=0.88", "--max-num-seqs=64"]),
    ],
    ids=["nothing", "one of them"],
)
def test_settings_that_tonnage_chose_apply_where_the_user_set_none(
    user_settings: dict[str, Any], want: list[str]
) -> None:
    chosen = EngineAdjustments(gpu_memory_utilization=0.88, max_num_seqs=512)
    arguments = arguments_of(make_option(adjustments=chosen), engine={"vllm": user_settings})
    flags = ("--gpu-memory-utilization", "--max-num-seqs", "--max-num-batched-tokens")
    assert [argument for argument in arguments if argument.startswith(flags)] == want


def test_defaults_of_vllm_are_not_rendered() -> None:
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
def test_only_a_pinned_revision_becomes_an_argument(revision: str, want: list[str]) -> None:
    arguments = arguments_of(model=source(huggingFace={"repo": "a/b", "revision": revision}))
    assert [argument for argument in arguments if argument.startswith("--revision")] == want


@pytest.mark.parametrize(
    ("tensor", "pipeline", "want"),
    [
        (1, 1, ["--tensor-parallel-size=1"]),
        (4, 2, ["--tensor-parallel-size=4", "--pipeline-parallel-size=2"]),
    ],
)
def test_parallelism_of_the_placement(tensor: int, pipeline: int, want: list[str]) -> None:
    arguments = arguments_of(make_option(tensor=tensor, pipeline=pipeline))
    assert [argument for argument in arguments if "parallel" in argument] == want


@pytest.mark.parametrize(
    ("version", "want"), [("v0.17.1", False), ("v0.18.0", True), ("v0.99.0", True)]
)
def test_an_old_release_that_cannot_drain_gets_no_shutdown_timeout(
    version: str, want: bool
) -> None:
    arguments = arguments_of(engine={"vllm": {"version": version}})
    assert any(argument.startswith("--shutdown-timeout") for argument in arguments) is want


GRAPHS = '--compilation-config={"cudagraph_mode":"FULL_DECODE_ONLY"}'


@pytest.mark.parametrize(
    ("extra", "want"),
    [
        pytest.param([], [GRAPHS, "--block-size=1"], id="without arguments of the user"),
        pytest.param(["--block_size", "16"], [GRAPHS], id="the user sets a flag of a rule"),
        pytest.param(["--block-size=1"], [GRAPHS], id="no duplicate"),
    ],
)
def test_arguments_of_compatibility_rules_come_before_the_users(
    extra: list[str], want: list[str]
) -> None:
    option = make_option(rules=Settings(args=(GRAPHS, "--block-size=1")))
    spec = make_spec(engine={"vllm": {"extraArgs": extra}})
    arguments = container_of(make_deployment(spec, option))["args"]
    assert arguments[len(arguments) - len(want) - len(extra) :] == [*want, *extra]


def test_the_users_arguments_come_last_and_as_written() -> None:
    extra = ["--api-key", "$(KEY)", "; rm -rf /", "--host=::"]
    assert arguments_of(engine={"vllm": {"extraArgs": extra}})[-4:] == extra


@pytest.mark.parametrize(
    ("extra_args", "want_instead"),
    [
        pytest.param(["--max-model-len"], "use spec.workload.maxModelLen", id="flag"),
        pytest.param(["--max-model-len", "8"], "use spec.workload.maxModelLen", id="two arguments"),
        pytest.param(["--max-model-len=8"], "use spec.workload.maxModelLen", id="with its value"),
        pytest.param(["--max_model_len=8"], "use spec.workload.maxModelLen", id="underscores"),
        pytest.param(["--max-model-l=8"], "which is --max-model-len, ", id="abbreviated"),
        pytest.param(["--tensor"], "status.placements", id="abbreviated to a word"),
        pytest.param(["-tp", "2"], "steer it with spec.placement", id="short"),
        pytest.param(["-t", "8"], "which is --tensor-parallel-size, ", id="short, abbreviated"),
        pytest.param(["-dp=2"], "use spec.replicas", id="short with its value"),
        pytest.param(["-qfp8"], "use spec.quantization", id="value behind one letter"),
        pytest.param(["--quantization", "fp8"], "use spec.quantization", id="quantization"),
        pytest.param(["--kv-cache-dtype=fp8"], "use spec.kvCacheDtype", id="KV cache"),
        pytest.param(["--kv-cache-memory-bytes=9"], "gpuMemoryUtilization", id="KV cache in bytes"),
        pytest.param(["--gpu-memory-utilization=1"], "gpuMemoryUtilization", id="utilization"),
        pytest.param(["--max-num-seqs", "5"], "use spec.engine.vllm.maxNumSeqs", id="batch"),
        pytest.param(["--served-model-name=x"], "use spec.model.name", id="name"),
        pytest.param(["--shutdown-timeout=0"], "grace period", id="the pod's lifetime"),
        pytest.param(["--config=/etc/vllm.yaml"], "into the spec", id="a file of flags"),
        pytest.param(["--host=127.0.0.1"], "expected :: or 0.0.0.0", id="loopback alone"),
        pytest.param(["--host", "127.0.0.1"], "expected :: or 0.0.0.0", id="loopback, two words"),
        pytest.param(["--headless"], "no replica becomes ready", id="no API server"),
        pytest.param(["--uds=/tmp/vllm"], "need a port", id="a socket"),
        pytest.param(["--ssl-certfile=/tls/crt"], "probes and the Service speak HTTP", id="TLS"),
        pytest.param(["--ssl-c=/tls/crt"], "which is --ssl-certfile, ", id="TLS, abbreviated"),
        pytest.param(["--dtype=float32"], "expected auto, half, float16 or bfloat16", id="32 bits"),
        pytest.param(["--enable-lor"], "which is --enable-lora, is refused: write it", id="prefix"),
        pytest.param(["--uds", "/tmp/vllm"], "'--uds' with the value '/tmp/vllm' is", id="in two"),
        pytest.param(["--nnodes", "2"], "one node", id="several nodes"),
    ],
)
def test_arguments_that_the_plan_depends_on_are_refused(
    extra_args: list[str], want_instead: str
) -> None:
    spec = make_spec(engine={"vllm": {"extraArgs": ["--seed=1", *extra_args]}})
    with pytest.raises(ReservedArgumentError) as refused:
        check_template(spec)
    assert refused.value.field == "spec.engine.vllm.extraArgs[1]"
    assert f"argument {extra_args[0]!r}" in str(refused.value)
    assert want_instead in str(refused.value)


@pytest.mark.parametrize(
    ("argument", "want_field"),
    [
        ("--enable-lora", "use spec.lora"),
        ("--max-loras=4", "use spec.lora.maxLoras"),
        ("--max_lora_rank=64", "use spec.lora.maxRank"),
        ("--max-cpu-loras=8", "use spec.lora.maxCpuLoras"),
        ("--lora-modules=a=/x", "use spec.lora.adapters"),
        ("--lora-target-modules=o_proj", "use spec.lora.targetModules"),
        ("--fully-sharded-loras", "use spec.lora.fullySharded"),
    ],
)
def test_flags_of_adapters_are_refused_where_the_spec_has_adapters(
    argument: str, want_field: str
) -> None:
    engine = {"vllm": {"extraArgs": [argument]}}
    check_template(make_spec(engine=engine))
    with pytest.raises(ReservedArgumentError) as refused:
        check_template(make_spec(engine=engine, lora={}))
    assert refused.value.field == "spec.engine.vllm.extraArgs[0]"
    assert want_field in str(refused.value)


@pytest.mark.parametrize(
    "extra_args",
    [
        ["--max-model-len-of-something-else"],
        ["--quantization-config={}"],
        ["--generation-config={}"],
        ["--enable-expert-parallel"],
        ["--host=::"],
        ["--host", "0.0.0.0"],
        ["-O3"],
        ["--seed", "-1"],
        ["--api-key", "max-model-len"],
        ["--"],
        ["-"],
        [""],
    ],
)
def test_other_arguments_are_allowed(extra_args: list[str]) -> None:
    check_template(make_spec(engine={"vllm": {"extraArgs": extra_args}}))
