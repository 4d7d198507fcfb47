"""Splits that vLLM accepts and refuses, with the words it would use."""

from dataclasses import replace
from typing import Any

import pytest

from tests.support.engines.shapes import (
    grouped_query,
    layer,
    load_shape,
    quantized,
    with_exception,
    with_layers,
)
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.mixer_kinds import Mamba, Mamba2, ShortConvolution
from tonnage.checkpoint.model import (
    Encoder,
    LinearAttention,
    Mixer,
    Mlp,
    ModelShape,
    Quantization,
)
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.legality.parallelism import check_parallelism, legal_degrees
from tonnage.fit.model import EngineOptions, Parallelism

Config = dict[str, Any]

CATALOG = load_catalog()
OPTIONS = EngineOptions("v0.32.0", 32768)
EXPERT_PARALLEL = replace(OPTIONS, enable_expert_parallel=True)


def rule(
    shape: ModelShape, tensor: int, pipeline: int = 1, options: EngineOptions = OPTIONS
) -> str | None:
    release = CATALOG.release(options.release)
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
FP8_CONFIG: Config = {"quant_method": "fp8", "weight_block_size": [128, 128]}


def dense_fp8(inner: int) -> ModelShape:
    return load_shape("llama-3.1-8b", intermediate_size=inner, quantization_config=FP8_CONFIG)


def test_blocks_of_experts_are_refined_by_new_releases() -> None:
    """1536 over 8 ranks is 192: blocks of 128 become 64."""
    assert rule(QWEN, 8) is None
    assert rule(QWEN, 8, options=replace(OPTIONS, release="v0.27.1")) == "QuantizationBlock"
    assert rule(QWEN, 4, options=replace(OPTIONS, release="v0.27.1")) is None


def test_blocks_of_compressed_tensors_are_not_refined() -> None:
    assert QWEN.quantization is not None
    compressed_tensors = replace(QWEN.quantization, method="compressed-tensors")
    assert rule(replace(QWEN, quantization=compressed_tensors), 8) == "QuantizationBlock"


def test_blocks_are_not_refined_below_what_kernels_take() -> None:
    odd = load_shape("qwen3-235b-a22b-fp8", moe_intermediate_size=1552)
    assert rule(odd, 8) == "QuantizationBlock"


def test_whole_experts_need_no_finer_blocks() -> None:
    options = replace(EXPERT_PARALLEL, release="v0.27.1")
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


@pytest.mark.parametrize(
    ("dtype", "want_rule"), [("auto", "QuantizationBlock"), ("float16", None), ("half", None)]
)
def test_kernels_for_any_part_of_a_group_compute_in_float16(
    dtype: str, want_rule: str | None
) -> None:
    """29568 over 8 ranks is 3696, no multiple of 64 either; the model is in bfloat16."""
    quantization = Quantization("gptq", 4, group_size=128, scale_bits=20, is_float=False)
    shape = quantized(load_shape("llama-3.1-8b", intermediate_size=29568), quantization)
    assert rule(shape, 8, options=replace(OPTIONS, dtype=dtype)) == want_rule


@pytest.mark.parametrize(("method", "version", "want_rule"), GROUPS)
def test_groups_that_tensor_parallelism_would_cut(
    method: str, version: str, want_rule: str | None
) -> None:
    """13824 over 8 ranks is 1728, no multiple of 128."""
    quantization = Quantization(method, 4, group_size=128, scale_bits=20, is_float=False)
    shape = quantized(load_shape("llama-3.1-8b", intermediate_size=13824), quantization)
    assert rule(shape, 8, options=replace(OPTIONS, release=version)) == want_rule


def test_layers_kept_in_16_bits_may_be_cut_anywhere() -> None:
    quantization = Quantization("compressed-tensors", 4, group_size=128, is_float=False)
    shape = quantized(load_shape("llama-3.1-8b", intermediate_size=13824), quantization)
    assert rule(shape, 8) == "QuantizationBlock"
    assert rule(with_exception(shape, "mlp.down_proj", 32), 8) is None


EXPERTS: list[tuple[str, ModelShape, str | None]] = [
    ("a dense model", LLAMA, "ExpertParallel"),
    ("256 experts over 8", load_shape("deepseek-v3"), None),
]


@pytest.mark.parametrize(("what", "shape", "want_rule"), EXPERTS)
def test_expert_parallelism(what: str, shape: ModelShape, want_rule: str | None) -> None:
    assert rule(shape, 8, options=EXPERT_PARALLEL) == want_rule, what


def test_experts_may_be_uneven_unless_the_class_needs_equal_numbers() -> None:
    odd = load_shape("mixtral-8x7b", num_local_experts=10)
    assert rule(odd, 4, options=EXPERT_PARALLEL) is None
    strict = replace(odd, architecture="DeepseekV4ForCausalLM")
    assert rule(strict, 4, options=EXPERT_PARALLEL) == "ExpertParallel"
    assert rule(strict, 2, options=EXPERT_PARALLEL) is None
    assert rule(strict, 4) is None


def test_pipelines() -> None:
    assert rule(LLAMA, 1, pipeline=2) is None
    assert rule(LLAMA, 1, pipeline=33) == "PipelineParallel"
    whisper = replace(LLAMA, architecture="Phi4MMForCausalLM")
    assert rule(whisper, 1, pipeline=2) == "PipelineParallel"
    assert rule(whisper, 1) is None


def test_messages_have_the_numbers() -> None:
    illegal = check_parallelism(LLAMA, Parallelism(3), OPTIONS, CATALOG.release(None))
    assert illegal is not None
    assert illegal.message == (
        "32 attention heads are not divisible by TP 3; TP 1, 2, 4, 8 would pass"
    )


def test_messages_name_alternatives() -> None:
    options = replace(OPTIONS, release="v0.27.1")
    illegal = check_parallelism(QWEN, Parallelism(8), options, CATALOG.release("v0.27.1"))
    assert illegal is not None
    assert illegal.message == (
        "TP 8 leaves 192 channels a GPU in experts, which is not divisible by the blocks of 128"
        " weights that share a scale; TP 1, 2, 4 or expert parallelism or a 16-bit checkpoint"
        " would pass"
    )


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


# What vLLM 0.32.0's own constructors said of small models, built as rank 0 of a group on the meta
# device. None: it was built.

DENSE: Config = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 13824,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 2,
    "vocab_size": 128256,
    "head_dim": 128,
    "max_position_embeddings": 8192,
}
NARROW: Config = {
    **DENSE,
    "intermediate_size": 8000,
    "hidden_size": 2048,
    "num_attention_heads": 16,
}
HEAD64: Config = {**DENSE, "hidden_size": 2048, "head_dim": 64, "intermediate_size": 14336}
MOE: Config = {
    **DENSE,
    "architectures": ["Qwen3MoeForCausalLM"],
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 1536,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "num_key_value_heads": 4,
    "vocab_size": 151936,
}
LATENT: Config = {
    **DENSE,
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "moe_intermediate_size": 1024,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "first_k_dense_replace": 1,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 8,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "vocab_size": 129280,
}
GPT_OSS = load_shape("gpt-oss-120b")
INT4: Config = {
    "num_bits": 4,
    "type": "int",
    "strategy": "group",
    "group_size": 128,
    "symmetric": True,
}
FP8_IN_BLOCKS: Config = {
    "num_bits": 8, "type": "float", "strategy": "block", "block_structure": [128, 128],
}  # fmt: skip
NVFP4_GROUP: Config = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}


def compressed(weights: Config) -> Config:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": None}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}}


def quark(dtype: str) -> Config:
    tensors = {"dtype": dtype, "group_size": 32}
    return {
        "quant_method": "quark",
        "global_quant_config": {"weight": tensors, "input_tensors": tensors},
    }


AWQ: Config = {"quant_method": "awq", "bits": 4, "group_size": 128}
GPTQ: Config = {"quant_method": "gptq", "bits": 4, "group_size": 128}
INC: Config = {"quant_method": "auto-round", "bits": 4, "group_size": 128}
NVFP4: Config = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16}
MODELOPT_BLOCKS: Config = {"quant_method": "modelopt", "quant_algo": "FP8_PB_WO"}

BUILT: list[tuple[str, Config, Config | None, int, str | None]] = [
    ("10 KV heads", {**DENSE, "num_attention_heads": 40, "num_key_value_heads": 10,
                     "hidden_size": 5120}, None, 4, "KvHeads"),
    ("10 KV heads", {**DENSE, "num_attention_heads": 40, "num_key_value_heads": 10,
                     "hidden_size": 5120}, None, 2, None),
    ("a vocabulary in fifths", {**DENSE, "num_attention_heads": 40, "num_key_value_heads": 10,
                                "hidden_size": 5120}, None, 5, "Vocabulary"),
    ("copied KV heads", {**DENSE, "num_key_value_heads": 2}, None, 16, None),
    ("11004 channels", {**DENSE, "intermediate_size": 11004}, None, 4, None),
    ("11004 channels", {**DENSE, "intermediate_size": 11004}, None, 8, "IntermediateSize"),
    ("1004 channels of an expert", {**MOE, "moe_intermediate_size": 1004}, None, 8, "ExpertSize"),
    ("more GPUs than experts", {**MOE, "num_experts": 8}, None, 16, "ExpertCount"),
    ("AWQ", DENSE, AWQ, 4, None),
    ("AWQ", DENSE, AWQ, 8, "QuantizationBlock"),
    ("AWQ, no number of groups at all", NARROW, AWQ, 1, "QuantizationBlock"),
    ("AWQ experts", MOE, AWQ, 8, None),
    ("GPTQ", DENSE, GPTQ, 8, None),
    ("GPTQ experts", MOE, GPTQ, 8, None),
    ("GPTQ by channel", DENSE, {**GPTQ, "group_size": -1}, 8, None),
    ("AutoRound", DENSE, INC, 8, None),
    ("AutoRound, no number of groups at all", NARROW, INC, 8, "QuantizationBlock"),
    ("compressed-tensors", DENSE, compressed(INT4), 8, "QuantizationBlock"),
    ("compressed-tensors experts", MOE, compressed(INT4), 8, "QuantizationBlock"),
    ("FP8 in blocks", DENSE, FP8_CONFIG, 8, "QuantizationBlock"),
    ("FP8 experts in blocks", MOE, FP8_CONFIG, 8, None),
    ("FP8 in blocks, one narrow head", {**HEAD64, "num_attention_heads": 8}, FP8_CONFIG, 8,
     "QuantizationBlock"),
    ("FP8 in blocks, half a block of keys", HEAD64, FP8_CONFIG, 16, None),
    ("compressed FP8, half a block of keys", HEAD64, compressed(FP8_IN_BLOCKS), 16,
     "QuantizationBlock"),
    ("compressed FP8 experts", MOE, compressed(FP8_IN_BLOCKS), 8, "QuantizationBlock"),
    ("latent attention in FP8", LATENT, FP8_CONFIG, 8, None),
    ("latent attention in FP8, one head", LATENT, FP8_CONFIG, 16, "QuantizationBlock"),
    ("ModelOpt in blocks", DENSE, MODELOPT_BLOCKS, 8, "QuantizationBlock"),
    ("ModelOpt experts in blocks", MOE, MODELOPT_BLOCKS, 8, None),
    ("NVFP4", DENSE, NVFP4, 8, None),
    ("NVFP4, part of a group", NARROW, NVFP4, 8, "QuantizationBlock"),
    ("compressed NVFP4, part of a group", NARROW, compressed(NVFP4_GROUP), 8, None),
    ("MXFP4 of Quark", DENSE, quark("fp4"), 8, None),
    ("MXFP4 of Quark, part of a group", NARROW, quark("fp4"), 8, "QuantizationBlock"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "config", "stored", "tensor", "want_rule"), BUILT)
def test_layouts_that_vllm_itself_built_or_refused(
    what: str,
    config: Config,
    stored: Config | None,
    tensor: int,
    want_rule: str | None,
) -> None:
    quantization = {} if stored is None else {"quantization_config": stored}
    assert rule(parse_config({**config, **quantization}), tensor) == want_rule, what


def test_a_class_that_does_not_copy_its_kv_heads() -> None:
    assert rule(GPT_OSS, 8) is None
    assert rule(GPT_OSS, 16) == "KvHeads"


STATES: list[tuple[str, Mixer, int, str | None]] = [
    ("128 heads in 8 groups", Mamba2(128, 64, 128, 8, 4), 8, None),
    ("8 groups over 16", Mamba2(128, 64, 128, 8, 4), 16, "StateSpace"),
    ("one group for all", Mamba2(128, 64, 128, 1, 4), 16, None),
    ("24 heads over 16", Mamba2(24, 64, 128, 1, 4), 16, "StateSpace"),
    ("8192 channels", Mamba(8192, 16, 4, 256), 16, None),
    ("8190 channels over 4", Mamba(8190, 16, 4, 256), 4, "StateSpace"),
    ("2050 channels of a convolution over 4", ShortConvolution(2050, 3), 4, "StateSpace"),
]


@pytest.mark.parametrize(("what", "mixer", "tensor", "want_rule"), STATES)
def test_states_that_are_shared_out(
    what: str, mixer: Mixer, tensor: int, want_rule: str | None
) -> None:
    assert rule(with_layers(LLAMA, (layer(mixer, Mlp(14336)), 4)), tensor) == want_rule, what


def test_heads_of_an_encoder_are_split_unless_it_is_kept_whole() -> None:
    multimodal = replace(LLAMA, encoders=(Encoder(1_000_000, heads=25),))
    assert rule(multimodal, 1) is None
    assert rule(multimodal, 8) == "EncoderHeads"
    assert rule(multimodal, 8, options=replace(OPTIONS, data_parallel_encoder=True)) is None
    assert rule(multimodal, 8, options=replace(OPTIONS, language_model_only=True)) is None
    assert rule(replace(multimodal, architecture="InternVLChatModel"), 8) is None


def test_mlps_of_an_encoder_are_split_too() -> None:
    multimodal = replace(LLAMA, encoders=(Encoder(1_000_000, heads=16, inner=3420),))
    assert rule(multimodal, 4) is None
    assert rule(multimodal, 8) == "EncoderHeads", "3420 over 8 ranks, as Qwen2.5-VL has it"
