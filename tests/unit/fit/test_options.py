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


GIB = 2**30
YARN = '{"rope_parameters": {"factor": 4.0, "rope_type": "yarn"}}'
VALUES: list[tuple[list[str], dict[str, Any]]] = [
    (["--dtype=half"], {"dtype": "half"}),
    (["--dtype", "auto"], {"dtype": "auto"}),
    (["--block-size", "32"], {"block_size": 32}),
    (["--cpu-offload-gb=10"], {"cpu_offload_bytes": 10 * GIB}),
    (["--cpu-offload-gb=0"], {}),
    (["--enable-lora"], {"enable_lora": True}),
    (
        ["--enable-lora", "--max-loras=4", "--max_lora_rank", "64"],
        {"enable_lora": True, "max_loras": 4, "max_lora_rank": 64},
    ),
    (
        ["--enable-lora", "--lora-target-modules", "qkv_proj", "o_proj", "--fully-sharded-loras"],
        {
            "enable_lora": True,
            "lora_target_modules": ("o_proj", "qkv_proj"),
            "fully_sharded_loras": True,
        },
    ),
    (
        ['--speculative-config={"method": "deepseek_mtp", "num_speculative_tokens": 2}'],
        {"speculative_tokens": 2},
    ),
    (
        ["-sc", '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4}'],
        {"speculative_tokens": 5},
    ),
    (['-cc={"cudagraph_mode": "NONE"}'], {"enforce_eager": True}),
    (["-cc.cudagraph_mode=NONE"], {}),
    (['--limit-mm-per-prompt={"image": 0, "video": 0}'], {"language_model_only": True}),
    (["--limit-mm-per-prompt", "image=0,video=0"], {"language_model_only": True}),
    (['--limit-mm-per-prompt={"image": 0}'], {}),
    (['--limit-mm-per-prompt={"image": 0, "video": 2}'], {}),
    (["--limit-mm-per-prompt={}"], {}),
    (["--cpu-offload-gb=10", "--cpu-offload-gb=0"], {}),
    (["--max-loras=4", "--max-loras=2"], {"max_loras": 2}),
    (["--hf-overrides", YARN], {"context_overrides": YARN}),
    (["--rope-scaling={}"], {"context_overrides": '{"rope_scaling": {}}'}),
    (
        ['--hf-overrides={"text_config": {"max_position_embeddings": 9}}'],
        {"context_overrides": '{"max_position_embeddings": 9}'},
    ),
]


@pytest.mark.parametrize(("extra_args", "want"), VALUES)
def test_values_of_extra_arguments_are_counted(extra_args: list[str], want: dict[str, Any]) -> None:
    assert options(*extra_args) == replace(options(), **want)


@pytest.mark.parametrize(
    ("extra_args", "want"),
    [
        (["--enable-eplb"], "[1] --enable-eplb, which brings copies of experts"),
        (["--speculative-config", '{"method": "eagle3"}'], "which brings a draft model"),
        (['-sc={"method": "gemma4_mtp", "model": "assistant"}'], "which brings a draft model"),
        (["--spec-model=draft"], "which brings a draft model"),
        (["--quantization-config={}"], "other formats of weights"),
        (["--speculative-config.method=eagle3"], "--speculative-config, which brings"),
        (['--hf-overrides={"hidden_size": 8}'], "which brings another config.json"),
        (['--hf-overrides={"text_config": {"num_hidden_layers": 8}}'], "another config.json"),
        (["--hf-overrides.rope_scaling.factor=4"], "another config.json"),
        (["--hf-config-path=/other"], "another config.json"),
        (["--enable-dbo"], "two batches at a time"),
    ],
)
def test_arguments_that_may_take_more_memory_are_listed(extra_args: list[str], want: str) -> None:
    (uncounted,) = options("--seed=1", *extra_args).uncounted
    assert uncounted.startswith("spec.engine.vllm.extraArgs[1] ")
    assert want in uncounted


@pytest.mark.parametrize(
    "extra_args", [["--attention-backend=FLASHINFER"], ["-dcp=2"], ["--offload-group-size", "2"]]
)
def test_arguments_that_take_no_more_memory_change_nothing(extra_args: list[str]) -> None:
    assert options(*extra_args) == options()


@pytest.mark.parametrize(
    ("extra_args", "want"),
    [
        (["--block-size=many"], "extraArgs[0]: --block-size 'many' is no size"),
        (["--cpu-offload-gb"], "extraArgs[0]: --cpu-offload-gb '': expected a number of GiB"),
        (["--hf-overrides", "x"], "--hf-overrides 'x': expected a JSON object"),
        (["--speculative-config={"], "expected a JSON object"),
        (["--max-loras=-1"], "--max-loras '-1' is no size"),
    ],
)
def test_a_value_that_vllm_cannot_read_is_refused(extra_args: list[str], want: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        options(*extra_args)
    assert want in str(refused.value)


def test_variables_that_change_what_vllm_accepts_are_stated() -> None:
    env = [
        {"name": "VLLM_ALLOW_LONG_MAX_MODEL_LEN", "value": "1"},
        {"name": "API_KEY", "value": "hunter2"},
    ]
    assert options(vllm={"env": env}).stated == {"VLLM_ALLOW_LONG_MAX_MODEL_LEN=1"}


@pytest.mark.parametrize(
    "extra_args",
    [
        ["--enable-log-requests"],
        ["--generation-config", "vllm"],
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


ADAPTER = {"name": "sql", "source": {"huggingFace": {"repo": "acme/sql"}}}


@pytest.mark.parametrize(
    ("lora", "want"),
    [
        ({}, {"max_loras": 1, "max_lora_rank": 16}),
        ({"adapters": [{**ADAPTER, "rank": 24}]}, {"max_loras": 1, "max_lora_rank": 32}),
        ({"adapters": [ADAPTER], "maxRank": 64}, {"max_loras": 1, "max_lora_rank": 64}),
        (
            {"maxLoras": 4, "targetModules": ["qkv_proj", "o_proj"], "fullySharded": True},
            {
                "max_loras": 4,
                "max_lora_rank": 16,
                "lora_target_modules": ("o_proj", "qkv_proj"),
                "fully_sharded_loras": True,
            },
        ),
    ],
)
def test_buffers_of_adapters_follow_from_the_spec(
    lora: dict[str, Any], want: dict[str, Any]
) -> None:
    assert options(lora=lora) == replace(options(), enable_lora=True, **want)


@pytest.mark.parametrize(
    ("lora", "want"),
    [
        ({"maxRank": 48}, "spec.lora.maxRank: 48: expected 1, 8, 16"),
        ({"adapters": [ADAPTER]}, "spec.lora.adapters[0].rank: the rank of adapter sql is unknown"),
    ],
)
def test_a_rank_that_vllm_does_not_reserve_is_named(lora: dict[str, Any], want: str) -> None:
    with pytest.raises(InvalidOptionError) as refused:
        options(lora=lora)
    assert want in str(refused.value)
