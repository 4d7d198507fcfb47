"""KV cache of one GPU, against the plans that vLLM makes and what its start-ups printed."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.engines.shapes import layer, load_shape, with_layers
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import LinearAttention, Mlp, ModelShape, Quantization
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.batch import Batch
from tonnage.fit.kv_cache.plan import KvCachePlan, plan_kv_cache
from tonnage.fit.model import EngineOptions, Parallelism

GIB = 2**30
CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 32768)
PLANNED = json.loads((Path(__file__).parents[3] / "data" / "kv_cache_plans.json").read_text())
BY_NAME = {entry["model"]: parse_config(entry["config"]) for entry in PLANNED["models"]}
PLANS = [
    pytest.param(
        BY_NAME[entry["model"]],
        plan,
        id=f"{entry['model']}-tp{plan['tensorParallelSize']}-{plan['kvCacheDtype']}"
        f"-{plan['speculativeTokens']}-{plan['accelerator']}",
    )
    for entry in PLANNED["models"]
    for plan in entry["plans"]
]


def plan_on(
    shape: ModelShape,
    options: EngineOptions = OPTIONS,
    tensor: int = 1,
    pipeline: int = 1,
    in_flight: int = 16384,
    accelerator: str = "h200-sxm-141gb",
) -> KvCachePlan:
    return plan_kv_cache(
        shape,
        Parallelism(tensor, pipeline),
        options,
        Batch(in_flight, 256, in_flight),
        CATALOG.accelerator(accelerator),
        CATALOG.release(options.release),
    )


@pytest.mark.parametrize(("shape", "want"), PLANS)
def test_vllm_plans_the_same_cache(shape: ModelShape, want: dict[str, Any]) -> None:
    options = replace(
        OPTIONS, kv_cache_dtype=want["kvCacheDtype"], speculative_tokens=want["speculativeTokens"]
    )
    plan = plan_on(
        shape,
        options,
        want["tensorParallelSize"],
        in_flight=2 * want["maxNumBatchedTokens"],
        accelerator=want["accelerator"],
    )
    length = want["maxModelLen"]
    assert plan.block_bytes == want["blockBytes"]
    assert plan.request_bytes(length) == want["requestBytes"]
    if want["tokenBytes"] is not None:
        assert plan.bytes_per_token == want["tokenBytes"]
    if want["tokensIn40GiB"] is not None:
        assert plan.tokens(40 * GIB, length) == want["tokensIn40GiB"]
    assert (plan.needed_bytes(length, length) <= 40 * GIB) == (want["tokensIn40GiB"] is not None)


STARTED: list[tuple[str, str, str, int, int, int, str]] = [
    # "... GiB KV cache is needed" for one request of max_model_len
    ("openai/gpt-oss-120b", "0.11.0", "auto", 1, 131_072, 1024, "4.54"),
    ("deepseek-ai/DeepSeek-V4-Pro", "0.32.0", "fp8", 8, 1_048_576, 32_768, "23.32"),
    # the same start said that 13,528 tokens would fill its 5.44 GiB
    ("deepseek-ai/DeepSeek-V4-Flash", "0.22.0", "fp8", 2, 30_000, 16_384, "6.66"),
    ("deepseek-ai/DeepSeek-V4-Flash", "0.22.0", "fp8", 2, 13_528, 16_384, "5.44"),
    ("deepseek-ai/DeepSeek-V4-Flash", "0.25.0", "fp8_ds_mla", 4, 131_072, 2048, "1.34"),
]


@pytest.mark.parametrize(
    ("name", "version", "dtype", "tensor", "length", "in_flight", "needed"), STARTED
)
def test_failed_starts_printed_the_need_of_a_request(
    name: str, version: str, dtype: str, tensor: int, length: int, in_flight: int, needed: str
) -> None:
    options = EngineOptions(version, length, kv_cache_dtype=dtype)
    plan = plan_on(BY_NAME[name], options, tensor, in_flight=in_flight)
    assert f"{plan.request_bytes(length) / GIB:.2f}" == needed


def test_linear_attention_with_mtp_held_the_printed_number_of_requests() -> None:
    options = EngineOptions(
        "0.20.2", 262_144, kv_cache_dtype="fp8", speculative_tokens=3, enable_prefix_caching=True
    )
    plan = plan_on(BY_NAME["Qwen/Qwen3.6-27B-FP8"], options, tensor=2)
    concurrency = {
        round(plan.tokens(int(memory * GIB), 262_144) / 262_144, 2)
        for memory in (11.045, 11.05, 11.0549)  # printed as 11.05
    }
    assert 2.38 in concurrency, "Maximum concurrency for 262,144 tokens per request"
    assert concurrency <= {2.37, 2.38}


@pytest.mark.parametrize(
    ("version", "want_bytes"),
    [("0.8.2", 126_976), ("0.8.5", 126_976), ("0.7.3", 126_976)],
)
def test_before_the_hybrid_manager_windows_kept_everything(version: str, want_bytes: int) -> None:
    shape = load_shape("gemma-3-27b")
    plan = plan_on(shape, EngineOptions(version, 65_536), tensor=4)
    assert plan.bytes_per_token == want_bytes
    assert plan.request_bytes(65_536) == 65_536 * want_bytes


def test_without_the_hybrid_manager_windows_keep_everything() -> None:
    shape = load_shape("gemma-3-27b")
    off = plan_on(shape, replace(OPTIONS, hybrid_kv_cache=False))
    assert off.request_bytes(32768) == 32768 * off.bytes_per_token == 32768 * 62 * 8192
    assert plan_on(shape).request_bytes(32768) < off.request_bytes(32768)


def test_a_model_with_windows_everywhere_costs_nothing_a_further_token() -> None:
    shape = load_shape("llama-3.1-8b", model_type="mistral", sliding_window=4096)
    plan = plan_on(shape)
    assert plan.bytes_per_token == 0
    held = 32 * (20480 + 16) * 4096
    assert plan.request_bytes(32768) == held, "4095 + 16384 tokens in blocks, and one block more"
    old = plan_on(shape, EngineOptions("0.8.3", 32768), in_flight=2048)
    assert old.request_bytes(32768) == 32 * (6144 + 16) * 4096
    oldest = plan_on(shape, EngineOptions("0.6.3", 32768))
    assert oldest.request_bytes(32768) == 32 * 32768 * 4096, "V0 keeps every token"


def test_a_window_includes_the_attending_token() -> None:
    shape = load_shape("llama-3.1-8b", model_type="mistral", sliding_window=17)
    assert plan_on(shape, in_flight=16).request_blocks(32768) == 2 + 1, "16 tokens back and 16 more"


def test_sequential_mtp_layers_keep_the_window_longer() -> None:
    shape = load_shape("llama-3.1-8b", model_type="mistral", sliding_window=17)
    (kind,) = shape.layer_kinds
    blocks = {
        (layers, speculative_tokens): plan_on(
            replace(shape, draft_layers=(kind,) * layers),
            replace(OPTIONS, speculative_tokens=speculative_tokens),
            in_flight=16,
        ).request_blocks(32768)
        for layers, speculative_tokens in ((1, 3), (3, 1), (3, 3))
    }
    assert blocks == {(1, 3): 3, (3, 1): 3, (3, 3): 4}


def test_latents_with_states_come_in_blocks_of_128_tokens() -> None:
    latents = load_shape("deepseek-v3").layer_kinds[0]
    states = layer(LinearAttention(16, 32, 128, 128, 4), Mlp(1024))
    plan = plan_on(with_layers(load_shape("deepseek-v3"), (latents, 4), (states, 12)))
    state_bytes = 8192 * 3 * 2 + 32 * 128 * 128 * 2
    assert 952 < state_bytes / (576 * 2) < 953
    assert plan.block_bytes == 4 * 1024 * 576 * 2


def test_chunks_are_kept_apart_since_they_cost_no_latency() -> None:
    shape = BY_NAME["meta-llama/Llama-4-Scout-17B-16E-Instruct"]
    before, since = (
        plan_on(shape, EngineOptions(version, 131_072), in_flight=8192)
        for version in ("0.11.0", "0.14.0")
    )
    assert before.request_bytes(131_072) == 131_072 * 48 * 4096
    assert since.request_bytes(131_072) < before.request_bytes(131_072) / 2


LATENTS: list[tuple[str, str, int]] = [
    ("0.6.6", "h200-sxm-141gb", 61 * 2 * 16 * 256 * 2),
    ("0.7.1", "h200-sxm-141gb", 61 * 576 * 2),
    ("0.7.3", "h200-sxm-141gb", 61 * 1280),
    ("0.7.3", "mi300x", 61 * 576 * 2),
    ("0.9.2", "h200-sxm-141gb", 61 * 576 * 2),
]


@pytest.mark.parametrize(("version", "accelerator", "want_bytes"), LATENTS)
def test_latents_by_release(version: str, accelerator: str, want_bytes: int) -> None:
    options = EngineOptions(version, 8192)
    plan = plan_on(load_shape("deepseek-v3"), options, tensor=8, accelerator=accelerator)
    assert plan.bytes_per_token == want_bytes


def declaring(method: str, bits: int, name: str = "llama-3.3-70b-fp8-dynamic") -> ModelShape:
    shape = load_shape(name)
    stored = load_shape("llama-3.3-70b-fp8-dynamic").quantization
    assert stored is not None
    return replace(shape, quantization=replace(stored, method=method, kv_cache_bits=bits))


DECLARED: list[tuple[str, int, str, str, int]] = [
    ("compressed-tensors", 8, "0.32.0", "auto", 163_840),
    ("compressed-tensors", 8, "0.14.0", "auto", 327_680),
    ("compressed-tensors", 8, "0.32.0", "bfloat16", 327_680),
    ("modelopt", 8, "0.14.0", "auto", 163_840),
    ("modelopt", 8, "0.11.0", "auto", 327_680),
    ("modelopt", 4, "0.32.0", "auto", 92_160),
    ("fp8", 8, "0.32.0", "auto", 327_680),
]


@pytest.mark.parametrize(("method", "bits", "version", "option", "want_bytes"), DECLARED)
def test_a_checkpoint_may_declare_the_element_type(
    method: str, bits: int, version: str, option: str, want_bytes: int
) -> None:
    options = EngineOptions(version, 32768, kv_cache_dtype=option)
    assert plan_on(declaring(method, bits), options).bytes_per_token == want_bytes


def test_latent_attention_follows_modelopt_only() -> None:
    modelopt, other = (
        plan_on(declaring(method, 8, "deepseek-v3")).bytes_per_token
        for method in ("modelopt", "compressed-tensors")
    )
    assert (modelopt, other) == (61 * 576, 61 * 576 * 2)


def test_a_declared_dtype_does_not_pack_rows() -> None:
    """FLASHMLA_SPARSE packs `fp8` and refuses `fp8_e4m3`, which another kernel takes as it is."""
    shape = replace(
        load_shape("deepseek-v3", index_n_heads=64, index_head_dim=128, index_topk=2048),
        quantization=Quantization("modelopt", 4, kv_cache_bits=8),
    )
    keys = 61 * 132
    options = EngineOptions("v0.32.0", 32768, kv_cache_dtype="fp8")
    assert plan_on(shape).bytes_per_token == 61 * 576 + keys
    assert plan_on(shape, options).bytes_per_token == 61 * 656 + keys


ELEMENTS: list[tuple[str, int]] = [
    ("fp8_e5m2", 163_840),
    ("int8_per_token_head", 80 * 8 * 2 * (128 + 4)),
    ("int4_per_token_head", 80 * 8 * 2 * (64 + 4)),
    ("nvfp4", 80 * 8 * 2 * (64 + 8)),
]


def test_a_latent_has_a_pair_of_scales() -> None:
    options = replace(OPTIONS, kv_cache_dtype="int8_per_token_head")
    assert plan_on(load_shape("deepseek-v3"), options).bytes_per_token == 61 * (576 + 2 * 4)


@pytest.mark.parametrize(("dtype", "want_bytes"), ELEMENTS)
def test_small_elements_have_scales(dtype: str, want_bytes: int) -> None:
    options = replace(OPTIONS, kv_cache_dtype=dtype)
    assert plan_on(load_shape("llama-3.3-70b"), options).bytes_per_token == want_bytes


def test_an_element_type_that_does_not_exist_is_named() -> None:
    options = replace(OPTIONS, kv_cache_dtype="fp7")
    with pytest.raises(ValueError, match=r"'fp7' is not known: expected auto, .*fp8"):
        plan_on(load_shape("llama-3.1-8b"), options)


def test_one_request_has_to_do_without_the_null_block() -> None:
    shape, length = load_shape("llama-3.1-8b"), 32768
    plan = plan_on(shape)
    one = plan.request_bytes(length)
    assert plan.needed_bytes(length, length) == one + plan.block_bytes
    assert plan.needed_bytes(2 * length, length) == 2 * one, "the last block of the second is there"
    older = plan_on(shape, EngineOptions("0.28.0", length))
    assert older.needed_bytes(length, length) == one


def test_larger_blocks_round_requests_up() -> None:
    plan = plan_on(load_shape("llama-3.1-8b"), replace(OPTIONS, block_size=256))
    assert plan.block_bytes == 256 * plan.bytes_per_token
    assert plan.request_bytes(257) == 2 * plan.block_bytes


def test_a_larger_batch_keeps_more_behind_the_window() -> None:
    shape = load_shape("gpt-oss-120b")
    smaller = plan_on(shape, in_flight=2048).request_bytes(32768)
    assert smaller < plan_on(shape).request_bytes(32768)


def test_states_are_kept_for_other_requests_by_default_since_0_28() -> None:
    shape = BY_NAME["Qwen/Qwen3.6-27B-FP8"]
    length = 32768

    def states(version: str, option: bool | None) -> int:
        options = EngineOptions(version, length, enable_prefix_caching=option)
        plan = plan_on(shape, options)
        return plan.request_blocks(length) - -(-length // 784)

    assert states("0.32.0", None) == 3 * 2, "three groups of 16 layers, two states each"
    assert states("0.32.0", False) == states("0.27.0", None) == 3
    assert states("0.20.1", True) == 3 * 2
    assert states("0.14.0", True) == 3, "prefix caching did nothing for states"


def test_the_fullest_pipeline_stage_counts() -> None:
    shape = load_shape("llama-3.1-405b-fp8")
    whole, halves = plan_on(shape), plan_on(shape, pipeline=4)
    assert whole.bytes_per_token == 126 * 4096
    assert halves.bytes_per_token == 32 * 4096, "126 layers on four stages are at most 32 each"
    assert halves.request_bytes(32768) * 126 == whole.request_bytes(32768) * 32


def test_some_releases_check_all_stages_against_one() -> None:
    shape = load_shape("llama-3.1-8b")
    forgetful = plan_on(shape, EngineOptions("0.15.2", 32768), pipeline=2)
    assert forgetful.request_bytes(32768) == 2 * GIB
    assert forgetful.needed_bytes(32768, 32768) == 4 * GIB
    careful = plan_on(shape, EngineOptions("0.18.0", 32768), pipeline=2)
    assert careful.needed_bytes(32768, 32768) == 2 * GIB
