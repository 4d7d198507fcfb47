"""The arguments of SGLang, and those of a user that are refused."""

from typing import Any

import pytest

from tests.golden.render.inputs import container_of, make_deployment, make_option, make_spec
from tonnage.engines.errors import RenderError
from tonnage.engines.registry import engine_named
from tonnage.fit.model import Parallelism
from tonnage.workloads.pod.template import check_template


def arguments_of(option: Any = None, /, **spec: Any) -> list[str]:
    engine = {"sglang": spec.pop("sglang", {})}
    deployment = make_deployment(make_spec(engine=engine, **spec), option or make_option("mi300x"))
    arguments: list[str] = container_of(deployment)["args"]
    return arguments


def test_what_sglang_decides_is_left_out() -> None:
    names = [argument.partition("=")[0] for argument in arguments_of()]
    assert names == [
        "--model-path",
        "--served-model-name",
        "--host",
        "--port",
        "--tp-size",
        "--context-length",
        "--enable-metrics",
    ]


def test_fields_of_the_spec_become_arguments_and_the_users_own_come_last() -> None:
    arguments = arguments_of(
        make_option("mi300x", tensor=4),
        kvCacheDtype="fp8",
        quantization="fp8",
        sglang={"memFractionStatic": 0.8, "extraArgs": ["--schedule-policy", "lpm"]},
    )
    assert {"--tp-size=4", "--kv-cache-dtype=fp8_e4m3", "--quantization=fp8"} <= {*arguments}
    assert "--mem-fraction-static=0.8" in arguments
    assert arguments[-2:] == ["--schedule-policy", "lpm"]


def test_the_parallelism_is_read_back() -> None:
    arguments = arguments_of(make_option("mi300x", tensor=4))
    assert engine_named("sglang").read_parallelism(arguments) == Parallelism(4)
    assert engine_named("sglang").read_parallelism(["--tp-size=x"]) == Parallelism()


@pytest.mark.parametrize(
    ("argument", "want"),
    [
        ("--context-length=4096", "use spec.workload.maxModelLen"),
        ("--mem-fraction-static", "use spec.engine.sglang.memFractionStatic"),
        ("--tensor-parallel-size=2", "the operator chooses the parallelism"),
        ("--enable-lora", "adapters are not supported"),
        ("--host=127.0.0.1", "expected :: or 0.0.0.0"),
        ("--port=1", "the Service and the probes rest on it"),
        ("--max-model-len=4096", "it is vLLM's; use spec.workload.maxModelLen"),
        ("--gpu_memory_utilization=0.9", "use spec.engine.sglang.memFractionStatic"),
    ],
)
def test_an_argument_of_the_operator_is_refused_by_its_name(argument: str, want: str) -> None:
    extra = ["--log-level=info", argument, *(["0.5"] if argument.endswith("static") else [])]
    with pytest.raises(RenderError, match=r"spec\.engine\.sglang\.extraArgs\[1\]") as refused:
        check_template(make_spec(engine={"sglang": {"extraArgs": extra}}))
    assert want in str(refused.value)


@pytest.mark.parametrize("form", [["--host=::"], ["--host", "::"], ["--host=0.0.0.0"]])
def test_pods_of_a_cluster_with_ipv6_alone_can_listen_there(form: list[str]) -> None:
    check_template(make_spec(engine={"sglang": {"extraArgs": form}}))
    assert arguments_of(sglang={"extraArgs": form})[-len(form) :] == form


@pytest.mark.parametrize(
    ("accelerator", "image"),
    [
        ("mi300x", "lmsysorg/sglang:v0.5.23-rocm720-mi30x"),
        ("mi355x", "lmsysorg/sglang:v0.5.23-rocm720-mi35x"),
        ("h100-sxm-80gb", "lmsysorg/sglang:v0.5.23"),
    ],
)
def test_the_image_is_that_of_the_generation(accelerator: str, image: str) -> None:
    spec = make_spec(engine={"sglang": {}})
    container = container_of(make_deployment(spec, make_option(accelerator)))
    assert container["image"] == image
    assert container["command"] == ["python3", "-m", "sglang.launch_server"]


def test_the_image_of_the_pool_serves_objects_without_a_version() -> None:
    declared = {
        "images": {"sglang": "mirror/sglang:1", "vllm": "mirror/vllm:1"},
        "nodeSelector": {"team": "a"},
    }
    option = make_option("mi300x", declared=declared)
    spec = make_spec(engine={"sglang": {}})
    assert container_of(make_deployment(spec, option))["image"] == "mirror/sglang:1"
    spec = make_spec(engine={"sglang": {"version": "v0.5.23"}})
    assert container_of(make_deployment(spec, option))["image"].startswith("lmsysorg/")
