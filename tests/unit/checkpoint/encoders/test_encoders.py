"""Vision encoders, compared with the bytes of rank 0 in vLLM 0.32.0."""

from typing import Any

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.checkpoint.model import CheckpointError, ModelShape

QWEN3_VISION = {
    "depth": 27, "hidden_size": 1152, "in_channels": 3, "intermediate_size": 4304, "num_heads": 16,
    "num_position_embeddings": 2304, "patch_size": 16, "spatial_merge_size": 2,
    "temporal_patch_size": 2,
}  # fmt: skip
SIGLIP = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
    "num_hidden_layers": 27, "num_attention_heads": 16, "image_size": 896, "patch_size": 14,
}  # fmt: skip


def multimodal_shape(
    family: str, width: int, vision: dict[str, Any] | None, **fields: Any
) -> ModelShape:
    """Return a small Llama with the vision encoder of the family."""
    vision_fields = {} if vision is None else {"vision_config": vision}
    return load_shape(
        "llama-3.1-8b",
        architectures=["LlavaForConditionalGeneration"],
        model_type=family,
        hidden_size=width,
        head_dim=128,
        **vision_fields,
        **fields,
    )


# family, width of the language model, its vision config, (TP, bytes of rank 0)
BUILT: list[tuple[str, int, dict[str, Any] | None, list[tuple[int, int]]]] = [
    ("qwen2_vl", 3584, {
        "depth": 32, "embed_dim": 1280, "mlp_ratio": 4, "num_heads": 16, "in_chans": 3,
        "hidden_size": 3584, "patch_size": 14, "spatial_merge_size": 2, "temporal_patch_size": 2,
    }, [(1, 1_351_518_208), (2, 677_516_288), (4, 340_515_328)]),
    ("qwen3_vl_moe", 4096,
     {**QWEN3_VISION, "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]},
     [(1, 1_152_776_672), (8, 152_248_220)]),
    ("qwen3_5", 5120, {**QWEN3_VISION, "out_hidden_size": 5120, "deepstack_visual_indexes": []},
     [(1, 921_460_192), (8, 123_265_564)]),
    ("gemma3", 5376, SIGLIP, [(1, 846_153_440), (8, 126_413_468)]),
    ("gemma4", 2816, {
        "hidden_size": 1152, "intermediate_size": 4304, "num_attention_heads": 16, "head_dim": 72,
        "num_hidden_layers": 27, "patch_size": 16, "position_embedding_size": 10240,
    }, [(1, 1_145_588_832), (8, 1_145_588_832)]),
    ("llama4", 5120, None, [(1, 910_356_480), (8, 115_453_056)]),
    ("mistral3", 5120, {
        "model_type": "pixtral", "hidden_size": 1024, "head_dim": 64, "intermediate_size": 4096,
        "num_attention_heads": 16, "num_hidden_layers": 24, "num_channels": 3, "patch_size": 14,
    }, [(1, 877_916_288), (8, 118_222_976)]),
    ("kimi_k25", 7168, {
        "init_pos_emb_height": 64, "init_pos_emb_width": 64, "merge_kernel_size": [2, 2],
        "patch_size": 14, "vt_hidden_size": 1152, "vt_intermediate_size": 4304,
        "vt_num_attention_heads": 16, "vt_num_hidden_layers": 27,
    }, [(1, 942_306_272), (8, 222_566_300)]),
]  # fmt: skip


ROTARY_TABLES = {"qwen2_vl": 8192 * 40, "qwen3_vl_moe": 8192 * 36, "qwen3_5": 8192 * 36}


@pytest.mark.parametrize(("family", "width", "vision", "want"), BUILT, ids=lambda v: str(v)[:12])
def test_encoders_of_published_models(
    family: str, width: int, vision: dict[str, Any] | None, want: list[tuple[int, int]]
) -> None:
    merger = {"spatial_merge_size": 2} if family == "mistral3" else {}
    (encoder,) = multimodal_shape(family, width, vision, **merger).encoders
    table_bytes = 2 * ROTARY_TABLES.get(family, 0)  # vLLM counts these separately
    for tensor_parallel_size, want_bytes in want:
        sharded_elements = -(-encoder.sharded_elements // tensor_parallel_size)
        rank_bytes = 2 * (sharded_elements + encoder.replicated_elements) - table_bytes
        assert rank_bytes == pytest.approx(want_bytes, rel=1e-4), tensor_parallel_size


def test_a_text_model_has_no_encoder() -> None:
    assert load_shape("llama-3.1-8b").encoders == ()


def test_layers_that_feed_the_language_model_directly_are_counted() -> None:
    vision = {**QWEN3_VISION, "out_hidden_size": 4096, "deepstack_visual_indexes": [8, 16, 24]}
    (encoder,) = multimodal_shape("qwen3_vl", 4096, vision).encoders
    assert encoder.deepstack_levels == 3
    assert encoder.heads == 16


def test_every_gpu_replicates_an_unknown_encoder() -> None:
    (encoder,) = multimodal_shape("novel_vl", 4096, {**SIGLIP, "model_type": "novel"}).encoders
    assert encoder.sharded_elements == 0
    assert encoder.replicated_elements > 400_000_000


def test_an_encoder_config_without_sizes_is_no_encoder() -> None:
    assert multimodal_shape("novel_vl", 4096, {"model_type": "novel"}).encoders == ()


def test_an_audio_encoder_follows_the_vision_encoder() -> None:
    audio = {"encoder_layers": 32, "d_model": 1280, "encoder_ffn_dim": 5120,
             "encoder_attention_heads": 20}  # fmt: skip
    encoders = multimodal_shape("voxtral", 4096, SIGLIP, audio_config=audio).encoders
    matrices, biases = 4 * 1280**2 + 2 * 1280 * 5120, 3 * 1280 + 5120
    assert encoders[1].sharded_elements == 32 * (matrices + biases)
    assert encoders[1].heads == 20


@pytest.mark.parametrize("ratio", [0, -1, "4", True, 65, float("nan")])
def test_the_error_for_an_invalid_ratio_names_it(ratio: object) -> None:
    vision = {"model_type": "novel", "hidden_size": 64, "depth": 2, "mlp_ratio": ratio}
    with pytest.raises(CheckpointError, match=r"vision_config\.mlp_ratio"):
        multimodal_shape("novel_vl", 4096, vision)
