"""From a spec to the options that memory depends on."""

from dataclasses import replace
from typing import Any

import pytest

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import EngineOptions
from tonnage.fit.options import InvalidOptionError, engine_options

CATALOG = load_catalog()


def options(*extra_args: str, **fields: Any) -> EngineOptions:
    vllm = {"extraArgs": list(extra_args), **fields.pop("vllm", {})}
    spec = InferenceDeploymentSpec.model_validate(
        {
            "model": {"source": {"huggingFace": {"repo": "meta-llama/Llama-3.1-8B"}}},
            "workload": {"maxModelLen": 8192},
            "engine": {"vllm": vllm},
            **fields,
        }
    )
    return engine_options(spec, CATALOG)


def test_unset_options_have_vllms_default() -> None:
    assert options() == EngineOptions("v0.32.0", 8192)


def test_set_options_are_used() -> None:
    result = options(
        kvCacheDtype="fp8",
        quantization="fp8",
        vllm={
            "version": "v0.27.1",
            "gpuMemoryUtilization": 0.85,
            "maxNumSeqs": 64,
            "maxNumBatchedTokens": 4096,
            "enforceEager": True,
        },
    )
    assert result == EngineOptions(
        "v0.27.1", 8192, 0.85, "fp8", "fp8", 64, 4096, enforce_eager=True
    )


@pytest.mark.parametrize("flag", ["--enable-expert-parallel", "--enable_expert_parallel"])
def test_expert_parallelism_among_the_extra_arguments(flag: str) -> None:
    assert options(flag).enable_expert_parallel
    assert not options().enable_expert_parallel


SWITCHES: list[tuple[list[str], dict[str, bool]]] = [
    (["--mm-encoder-tp-mode", "data"], {"data_parallel_encoder": True}),
    (["--mm-encoder-tp-mode=data"], {"data_parallel_encoder": True}),
    (["--mm_encoder_tp_mode=data"], {"data_parallel_encoder": True}),
    (["--mm-encoder-tp-mode", "weights"], {}),
    (["--language-model-only"], {"language_model_only": True}),
    (["--performance-mode", "throughput"], {"throughput_batch": True}),
    (["--performance-mode", "balanced"], {}),
    (["--no-enable-chunked-prefill"], {"enable_chunked_prefill": False}),
    (["--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
    (["--disable-hybrid-kv-cache-manager", "--api-key", "x"], {"hybrid_kv_cache": False}),
    (["--enable-prefix-caching", "--no-enable-prefix-caching"], {"enable_prefix_caching": False}),
]


@pytest.mark.parametrize(("extra_args", "want"), SWITCHES)
def test_memory_options_among_the_extra_arguments(
    extra_args: list[str], want: dict[str, Any]
) -> None:
    assert options(*extra_args) == replace(options(), **want)


@pytest.mark.parametrize(
    "extra_args",
    [
        ["--enable-log-requests"],
        ["--quantization-config", "{}"],
        ["--chat-template", "--max-model-len.jinja"[2:]],
        ["--model-impl", "transformers"],
        ["-O3"],
    ],
)
def test_other_arguments_set_no_option(extra_args: list[str]) -> None:
    assert options(*extra_args) == options()


def test_a_version_without_numbers_is_refused() -> None:
    spec = InferenceDeploymentSpec.model_validate(
        {
            "model": {"source": {"huggingFace": {"repo": "a/b"}}},
            "workload": {"maxModelLen": 1},
        }
    )
    vllm = spec.engine.vllm.model_copy(update={"version": "newest"})
    broken = spec.model_copy(update={"engine": spec.engine.model_copy(update={"vllm": vllm})})
    with pytest.raises(InvalidOptionError, match=r"spec\.engine\.vllm\.version"):
        engine_options(broken, CATALOG)
