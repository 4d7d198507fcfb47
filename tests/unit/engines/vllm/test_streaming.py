"""The Run:ai Model Streamer: what is refused, and the memory of the host."""

import json
from typing import Any

import pytest

from tests.golden.render.inputs import (
    GIB,
    container_of,
    make_checkpoint,
    make_deployment,
    make_option,
    make_spec,
)
from tonnage.catalog.load import load_catalog
from tonnage.engines.errors import ReservedArgumentError
from tonnage.fit.options import engine_options
from tonnage.workloads.pod.template import check_template

STREAMER = "--load-format=runai_streamer"
FROM_S3 = {"source": {"inline": {"config": {}, "loadFrom": "s3://bucket/llama"}}}


def streamed(*more: str, env: list[dict[str, str]] | None = None, **fields: Any) -> Any:
    return make_spec(engine={"vllm": {"extraArgs": [STREAMER, *more], "env": env or []}}, **fields)


def config(**values: Any) -> str:
    return f"--model-loader-extra-config={json.dumps(values)}"


def memory_of(spec: Any, *, tensor: int = 4, weights_gib: int = 128) -> int:
    """GiB that the pod requests in addition to what it requests without the streamer."""
    requests = [
        container_of(
            make_deployment(
                each,
                make_option("h100-sxm-80gb", tensor=tensor),
                checkpoint=make_checkpoint(weights_gib * GIB),
            )
        )["resources"]["requests"]["memory"]
        for each in (spec, make_spec())
    ]
    with_it, without = (int(quantity.removesuffix("Gi")) for quantity in requests)
    return with_it - without


@pytest.mark.parametrize(
    ("spec", "want"),
    [
        pytest.param(streamed(), 150, id="40 GB in each of four processes"),
        pytest.param(streamed(config(memory_limit=2**33)), 32, id="8 GiB in each"),
        pytest.param(streamed(config(memory_limit=-1)), 512, id="all of the model in each"),
        pytest.param(streamed(config(memory_limit=0)), 0, id="one tensor at a time"),
        pytest.param(streamed(config(distributed=True)), 128, id="each has its part"),
        pytest.param(
            streamed(config(distributed=True, memory_limit=2**33)), 32, id="a part of its part"
        ),
        pytest.param(
            streamed(
                "--model-loader-extra-config.memory_limit=-1",
                "--model-loader-extra-config.concurrency",
                "16",
            ),
            512,
            id="vLLM joins keys",
        ),
        pytest.param(
            streamed("--model-loader-extra-config.concurrency=16", config(memory_limit=-1)),
            150,
            id="keys replace a whole object",
        ),
        pytest.param(
            streamed(env=[{"name": "RUNAI_STREAMER_MEMORY_LIMIT", "value": str(2**33)}]),
            32,
            id="by the variable",
        ),
        pytest.param(
            streamed(
                config(memory_limit=2**32),
                env=[{"name": "RUNAI_STREAMER_MEMORY_LIMIT", "value": str(2**33)}],
            ),
            16,
            id="the flag wins",
        ),
        pytest.param(
            make_spec(
                engine={
                    "vllm": {
                        "extraArgs": [
                            "--load-format=runai_streamer_sharded",
                            config(memory_limit="of another loader", pattern="x"),
                        ]
                    }
                }
            ),
            128,
            id="each process reads the files of its own",
        ),
        pytest.param(make_spec(model=FROM_S3), 150, id="vLLM streams from object stores"),
        pytest.param(make_spec(), 0, id="without"),
        pytest.param(
            make_spec(engine={"vllm": {"extraArgs": ["--load-format", "safetensors"]}}),
            0,
            id="another format",
        ),
    ],
)
def test_the_buffers_count_in_the_memory_of_the_pod(spec: Any, want: int) -> None:
    check_template(spec)
    assert memory_of(spec) == want


def test_a_buffer_is_no_larger_than_the_model() -> None:
    assert memory_of(streamed(), tensor=1, weights_gib=16) == 32, "the step of a model's size"


def refusal(*arguments: str, **fields: Any) -> str:
    with pytest.raises(ReservedArgumentError) as refused:
        check_template(make_spec(engine={"vllm": {"extraArgs": list(arguments)}}, **fields))
    return str(refused.value)


@pytest.mark.parametrize(
    ("extra", "want"),
    [
        ("--model-loader-extra-config=16", "expected a JSON object"),
        ("--model-loader-extra-config={", "expected a JSON object"),
        (config(threads=16), "the streamer has no 'threads'; expected distributed, concurrency"),
        (config(distributed="yes"), "expected true or false for distributed"),
        (config(concurrency=0), "expected a number of threads above 0 for concurrency"),
        (config(concurrency=True), "expected a number of threads above 0 for concurrency"),
        (config(memory_limit=-2), "expected bytes, 0 or -1 for memory_limit"),
        (config(memory_limit=0.5), "expected bytes, 0 or -1 for memory_limit"),
        ("--model-loader-extra-config.concurrency=0", "expected a number of threads above 0"),
    ],
)
def test_settings_that_vllm_refuses_are_refused_with_the_argument(extra: str, want: str) -> None:
    message = refusal("--seed=1", STREAMER, extra)
    assert message.startswith("spec.engine.vllm.extraArgs[2]: ")
    assert want in message


def test_settings_of_another_loader_are_its_own() -> None:
    check_template(
        make_spec(engine={"vllm": {"extraArgs": ["--load-format=tensorizer", config(uri="x")]}})
    )


def test_a_format_for_which_pods_lack_a_daemon_is_refused() -> None:
    message = refusal("--load-format", "ipc_cache")
    assert message.startswith("spec.engine.vllm.extraArgs[0]: ")
    assert "vllm preload" in message


def test_what_cannot_read_an_object_store_is_refused() -> None:
    message = refusal("--load-format=safetensors", model=FROM_S3)
    assert "expected one of auto, runai_streamer" in message
    check_template(streamed(model=FROM_S3))


@pytest.mark.parametrize(
    ("load_format", "want"), [("instanttensor", True), ("runai_streamer", False)]
)
def test_the_loader_for_cuda_only_reaches_the_rules(load_format: str, want: bool) -> None:
    spec = make_spec(engine={"vllm": {"extraArgs": ["--load-format", load_format]}})
    assert engine_options(spec, load_catalog()).cuda_loader is want
