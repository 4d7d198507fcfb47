"""Tables of cosines and sines, by the fields of published configs."""

from typing import Any

import pytest

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.shape import parse_config

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "num_hidden_layers": 12,
    "vocab_size": 32000,
    "max_position_embeddings": 8192,
}
LATENT: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "model_type": "deepseek_v3",
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 163840,
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
}
INDEXED: dict[str, Any] = {**LATENT, "index_n_heads": 64, "index_head_dim": 128}
GEMMA_3: dict[str, Any] = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "head_dim": 256,
    "sliding_window": 1024,
    "sliding_window_pattern": 6,
    "max_position_embeddings": 131072,
}
BY_KIND: dict[str, Any] = {
    "full_attention": {"rope_type": "proportional", "partial_rotary_factor": 0.25},
    "sliding_attention": {"rope_type": "default"},
}

# Positions, width and bytes of an element.
TABLES: list[tuple[str, dict[str, Any], list[tuple[int, int, int]]]] = [
    ("as long as the context", {}, [(8192, 128, 2)]),
    ("linear scaling", {"rope_scaling": {"type": "linear", "factor": 4}}, [(32768, 128, 2)]),
    ("the length with llama3 includes scaling",
     {"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, [(8192, 128, 2)]),
    ("dynamic scaling", {"rope_scaling": {"type": "dynamic", "factor": 2.0}}, [(8192, 128, 2)]),
    ("yarn multiplies the original length",
     {"rope_parameters": {"rope_type": "yarn", "factor": 4.0,
                          "original_max_position_embeddings": 32768}}, [(131072, 128, 2)]),
    ("longrope has a short table and a long one",
     {"model_type": "phi3", "original_max_position_embeddings": 4096,
      "rope_scaling": {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}},
     [(12288, 128, 2)]),
    ("dual chunk attention has four additional short tables",
     {"dual_chunk_attention_config": {"chunk_size": 2048, "local_size": 1024}},
     [(8192 + 4 * 1024, 128, 2)]),
    ("part of each head", {"partial_rotary_factor": 0.5}, [(8192, 64, 2)]),
    ("part of each head, by another name", {"rotary_pct": 0.25}, [(8192, 32, 2)]),
    ("a number of elements of each head", {"rotary_dim": 64}, [(8192, 64, 2)]),
    ("part of each head by the family",
     {"model_type": "stablelm", "architectures": ["StableLmForCausalLM"]}, [(8192, 32, 2)]),
    ("none with learned positions",
     {"model_type": "opt", "architectures": ["OPTForCausalLM"]}, []),
    ("none for models that run the code of transformers",
     {"model_type": "olmo2", "architectures": ["Olmo2ForCausalLM"]}, []),
    ("four times the length for images",
     {"model_type": "qwen2_vl", "architectures": ["Qwen2VLForConditionalGeneration"],
      "rope_scaling": {"type": "mrope", "mrope_section": [16, 24, 24]}}, [(32768, 128, 2)]),
    ("once for images of Qwen3",
     {"model_type": "qwen3_vl_text", "architectures": ["Qwen3VLForConditionalGeneration"],
      "rope_scaling": {"rope_type": "default", "mrope_section": [24, 20, 20]}}, [(8192, 128, 2)]),
    ("32 bits",
     {"model_type": "gpt_oss", "architectures": ["GptOssForCausalLM"], "head_dim": 64},
     [(8192, 64, 4)]),
    ("Gemma 3: one for windows, one for the whole context", GEMMA_3,
     [(131072, 256, 2), (131072, 256, 2)]),
    ("Gemma 3: scaling applies only to the table for the whole context",
     {**GEMMA_3, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
     [(131072, 256, 2), (1048576, 256, 2)]),
    ("Gemma 4: one for each kind, whole heads",
     {**GEMMA_3, "model_type": "gemma4_text", "global_head_dim": 512,
      "rope_parameters": BY_KIND}, [(131072, 256, 2), (131072, 512, 2)]),
    ("latent attention has a separate rotary part", LATENT, [(163840, 64, 2)]),
    ("the indexer has its own table", INDEXED, [(163840, 64, 2), (163840, 64, 2)]),
    ("the indexer shares the table",
     {**INDEXED, "indexer_rope_interleave": True}, [(163840, 64, 2)]),
]  # fmt: skip


@pytest.mark.parametrize(("what", "fields", "want"), TABLES)
def test_tables(what: str, fields: dict[str, Any], want: list[tuple[int, int, int]]) -> None:
    caches = parse_config({**LLAMA, **fields}).rope_caches
    got = [(cache.positions, cache.width, cache.element_bytes) for cache in caches]
    assert sorted(got) == sorted(want), what


def test_an_enormous_factor_is_refused() -> None:
    scaling = {"type": "linear", "factor": 1e8}
    with pytest.raises(CheckpointError, match="rope_scaling stretches the context"):
        parse_config({**LLAMA, "rope_scaling": scaling})
