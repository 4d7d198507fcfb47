"""Splits that vLLM accepts and refuses, with the words it would use."""

from dataclasses import replace

import pytest

from tests.support.shapes import (
    grouped_query,
    layer,
    load_shape,
    quantized,
    with_exception,
    with_layers,
)
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import LinearAttention, Mlp, ModelShape, Quantization
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.parallelism import check_parallelism, legal_degrees

CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 32768)
EXPERT_PARALLEL = replace(OPTIONS, enable_expert_parallel=True)


def rule(
    shape: ModelShape, tensor: int, pipeline: int = 1, options: EngineOptions = OPTIONS
) -> str | None:
    release = CATALOG.release(options.vllm_version)
    illegal = check_parallelism(shape, Parallelism(tensor, pipeline), options, release)
    return illegal.rule if illegal else None


LLAMA = load_shape("llama-3.1-8b")


def heads(query: int, key: int) -> ModelShape:
    return load_shape(
        "llama-3.1-8b", num_attention_heads=query, num_key_value_heads=key, head_dim=128
    )


HEADS: list[tuple[str, ModelShape, int, str | None]] = [
    ("32 heads over 8", LLAMA, 8, None),
    ("32 heads over 3", LLAMA, 3, "AttentionHeads"),
    ("28 heads over 8", heads(28, 4), 8, "AttentionHeads"),
    ("40 heads and 10 KV heads over 2", heads(40, 10), 2, None),
    ("10 KV heads over 4", heads(40, 10), 4, "KvHeads"),
    ("10 KV heads over 8", heads(40, 10), 8, "KvHeads"),
    ("2 KV heads replicated over 8", heads(32, 2), 8, None),
    ("3 global KV heads over 4",
     with_layers(LLAMA, (layer(grouped_query(32, 8), Mlp(14336)), 4),
                 (layer(grouped_query(36, 3), Mlp(14336)), 4)), 4, "KvHeads"),
    ("one latent for all", load_shape("deepseek-v3"), 8, None),
    ("linear heads that divide", load_shape("qwen3.5-397b-a17b"), 8, None),
    ("linear heads that do not",
     with_layers(LLAMA, (layer(LinearAttention(2, 6, 128, 128, 4), Mlp(14336)), 8)), 4,
     "LinearAttentionHeads"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "shape", "tensor", "want_rule"), HEADS)
def test_heads(what: str, shape: ModelShape, tensor: int, want_rule: str | None) -> None:
    assert rule(shape, tensor) == want_rule, what


QWEN = load_shape("qwen3-235b-a22b-fp8")
FP8_CONFIG = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def dense_fp8(inner: int) -> ModelShape:
    return load_shape("llama-3.1-8b", intermediate_size=inner, quantization_config=FP8_CONFIG)


def test_blocks_of_experts_are_refined_by_new_releases() -> None:
    """1536 over 8 ranks is 192: blocks of 128 become 64."""
    assert rule(QWEN, 8) is None
    assert rule(QWEN, 8, options=replace(OPTIONS, vllm_version="v0.27.1")) == "QuantizationBlock"
    assert rule(QWEN, 4, options=replace(OPTIONS, vllm_version="v0.27.1")) is None


def test_blocks_of_compressed_tensors_are_not_refined() -> None:
    assert QWEN.quantization is not None
    stored = replace(QWEN.quantization, method="compressed-tensors")
    assert rule(replace(QWEN, quantization=stored), 8) == "QuantizationBlock"


def test_blocks_are_not_refined_below_what_kernels_take() -> None:
    odd = load_shape("qwen3-235b-a22b-fp8", moe_intermediate_size=1552)
    assert rule(odd, 8) == "QuantizationBlock"


def test_whole_experts_need_no_finer_blocks() -> None:
    options = replace(EXPERT_PARALLEL, vllm_version="v0.27.1")
    assert rule(QWEN, 8, options=options) is None


def test_blocks_of_dense_layers_are_not_refined() -> None:
    assert rule(dense_fp8(14336), 8) is None
    assert rule(dense_fp8(14336 + 512), 8) == "QuantizationBlock"


def test_one_gpu_splits_no_block() -> None:
    assert rule(dense_fp8(14337), 1) is None


GROUPS: list[tuple[str, str, str | None]] = [
    ("compressed-tensors", "v0.32.0", "QuantizationBlock"),
    ("gptq", "v0.32.0", None),
    ("awq", "v0.27.1", "QuantizationBlock"),
]


@pytest.mark.parametrize(("method", "version", "want_rule"), GROUPS)
def test_groups_that_a_split_would_cut(method: str, version: str, want_rule: str | None) -> None:
    """13824 over 8 ranks is 1728, no multiple of 128."""
    stored = Quantization(method, 4, group_size=128, scale_bits=20, is_float=False)
    shape = quantized(load_shape("llama-3.1-8b", intermediate_size=13824), stored)
    assert rule(shape, 8, options=replace(OPTIONS, vllm_version=version)) == want_rule


def test_layers_kept_in_16_bits_may_be_cut_anywhere() -> None:
    stored = Quantization("compressed-tensors", 4, group_size=128, is_float=False)
    shape = quantized(load_shape("llama-3.1-8b", intermediate_size=13824), stored)
    assert rule(shape, 8) == "QuantizationBlock"
    assert rule(with_exception(shape, "mlp.down_proj", 32), 8) is None


EXPERTS: list[tuple[str, ModelShape, str | None]] = [
    ("a dense model", LLAMA, "ExpertParallel"),
    ("256 experts over 8", load_shape("deepseek-v3"), None),
]


@pytest.mark.parametrize(("what", "shape", "want_rule"), EXPERTS)
def test_expert_parallelism(what: str, shape: ModelShape, want_rule: str | None) -> None:
    assert rule(shape, 8, options=EXPERT_PARALLEL) == want_rule, what


def test_experts_that_cannot_be_dealt_out_evenly() -> None:
    odd = load_shape("mixtral-8x7b", num_local_experts=10)
    assert rule(odd, 4, options=EXPERT_PARALLEL) == "ExpertParallel"
    assert rule(odd, 4) is None


def test_pipelines() -> None:
    assert rule(LLAMA, 1, pipeline=2) is None
    assert rule(LLAMA, 1, pipeline=33) == "PipelineParallel"
    whisper = replace(LLAMA, architecture="Phi4MMForCausalLM")
    assert rule(whisper, 1, pipeline=2) == "PipelineParallel"
    assert rule(whisper, 1) is None


def test_messages_have_the_numbers() -> None:
    illegal = check_parallelism(LLAMA, Parallelism(3), OPTIONS, CATALOG.release(None))
    assert illegal is not None
    assert illegal.message == "32 attention heads are not divisible by TP 3"


@pytest.mark.parametrize(
    ("name", "max_gpus", "want"),
    [
        ("llama-3.1-8b", 8, [1, 2, 4, 8]),
        ("llama-3.1-8b", 4, [1, 2, 4]),
        ("llama-3.1-8b", 7, [1, 2, 4]),
        ("llama-3.1-8b", 1, [1]),
        ("llama-3.1-8b", 0, []),
        ("deepseek-v3", 8, [1, 2, 4, 8]),
        ("gpt-oss-120b", 8, [1, 2, 4, 8]),
        ("qwen3-235b-a22b-fp8", 8, [1, 2, 4, 8]),
    ],
)
def test_legal_degrees_within_a_node(name: str, max_gpus: int, want: list[int]) -> None:
    degrees = legal_degrees(load_shape(name), OPTIONS, CATALOG.release(None), max_gpus)
    assert [degree.tensor for degree in degrees] == want
    assert all(degree.pipeline == 1 for degree in degrees)
