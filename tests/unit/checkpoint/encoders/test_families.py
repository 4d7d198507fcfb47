"""Vision and audio encoders by family, compared with those that vLLM 0.32.0 builds.

Bytes are those of rank 0 by tensor-parallel size, without the tables of cosines and sines, which
vLLM counts separately.
"""

from typing import Any

import pytest

from tests.support.engines.shapes import load_shape
from tonnage.checkpoint.model import ModelShape

SIGLIP_27 = {
    "model_type": "siglip_vision_model", "hidden_size": 1152, "intermediate_size": 4304,
    "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14,
}  # fmt: skip
CLIP_336 = {
    "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096,
    "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 336, "patch_size": 14,
}  # fmt: skip
WHISPER = {
    "d_model": 1280, "encoder_attention_heads": 20, "encoder_ffn_dim": 5120, "encoder_layers": 32,
    "num_mel_bins": 128, "max_source_positions": 1500,
}  # fmt: skip


def multimodal_shape(family: str, width: int, **fields: Any) -> ModelShape:
    """Return a small Llama with the encoders of the family."""
    return load_shape(
        "llama-3.1-8b",
        **{
            "architectures": ["LlavaForConditionalGeneration"],
            "model_type": family,
            "hidden_size": width,
            "head_dim": 128,
            **fields,
        },
    )


# family, width of the language model, fields for encoders, bytes by TP size
BUILT: list[tuple[str, int, dict[str, Any], dict[int, int]]] = [
    ("cohere2_vision", 12288, {
        "downsample_factor": 2, "alignment_intermediate_size": 36864,
        "vision_config": {**SIGLIP_27, "image_size": 512, "num_attention_heads": 12,
                          "patch_size": 16},
    }, {1: 1_619_898_848, 2: 812_220_272, 4: 408_380_984}),
    ("smolvlm", 2048, {
        "scale_factor": 3,
        "vision_config": {**SIGLIP_27, "model_type": "smolvlm_vision", "image_size": 384},
    }, {1: 868_441_824, 2: 457_161_840, 8: 148_701_852}),
    ("internvl_chat", 3584, {"vision_config": {
        "model_type": "intern_vit_6b", "hidden_size": 1024, "intermediate_size": 4096,
        "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": 448, "patch_size": 14,
        "qkv_bias": True, "qk_normalization": False,
    }}, {1: 663_105_536, 4: 209_862_656}),
    ("internvl", 4096, {"vision_config": {
        "model_type": "internvl_vision", "hidden_size": 1024, "intermediate_size": 4096,
        "num_hidden_layers": 24, "num_attention_heads": 16, "image_size": [448, 448],
        "patch_size": [14, 14], "attention_bias": False,
    }}, {1: 675_018_752, 4: 372_881_408, 8: 322_525_184}),
    ("aria", 4096, {"vision_config": {
        "model_type": "idefics3_vision", "hidden_size": 1152, "intermediate_size": 3072,
        "num_hidden_layers": 12, "num_attention_heads": 16, "image_size": 224, "patch_size": 32,
    }}, {1: 369_627_392, 4: 114_312_704, 8: 71_760_256}),
    ("llava_next_video", 4096, {"vision_feature_layer": -2, "vision_config": CLIP_336},
     {1: 623_782_408, 8: 117_031_688}),
    ("llava", 4096, {"vision_feature_layer": -2, "vision_config": CLIP_336},
     {1: 623_782_408, 4: 157_961_224, 8: 80_324_360}),
    ("llava", 4096, {"vision_config": CLIP_336}, {1: 623_782_408}),
    ("llava", 4096, {"vision_feature_layer": [7, 23], "vision_config": CLIP_336},
     {1: 623_782_408}),
    ("llava_onevision", 3584, {
        "vision_feature_layer": -1,
        "vision_config": {**SIGLIP_27, "image_size": 384, "num_hidden_layers": 26},
    }, {1: 829_458_696, 2: 433_411_304}),
    ("paligemma", 3584, {
        "projection_dim": 2304,
        "vision_config": {**SIGLIP_27, "image_size": 448, "projection_dim": 3584},
    }, {1: 831_975_392, 2: 420_695_408, 8: 112_235_420}),
    ("molmo", 3584, {"intermediate_size": 37888}, {1: 809_900_032, 2: 406_292_480}),
    ("minimax_m3_vl", 6144, {
        "projector_hidden_size": 6144,
        "sparse_attention_config": {"sparse_num_index_heads": 4, "sparse_index_dim": 128,
                                    "sparse_topk_blocks": 16},
        "img_token_compression_config": {"spatial_merge_size": 2, "temporal_patch_size": 2},
        "vision_config": {"model_type": "clip_vision_model", "hidden_size": 1280,
                          "num_attention_heads": 16, "num_hidden_layers": 32,
                          "intermediate_size": 5120, "patch_size": 14, "image_size": 2016},
    }, {1: 1_731_134_620, 8: 219_482_268}),
    ("qwen2_audio", 4096, {"audio_config": WHISPER},
     {1: 1_284_431_872, 4: 1_284_431_872, 8: 1_284_431_872}),
    ("qwen3_asr", 2048, {"audio_config": {
        "num_mel_bins": 128, "encoder_layers": 24, "encoder_attention_heads": 16,
        "encoder_ffn_dim": 4096, "d_model": 1024, "output_dim": 3584, "downsample_hidden_size": 480,
    }}, {1: 644_247_808, 8: 115_464_448}),
    ("ultravox", 4096,
     {"stack_factor": 8, "projector_act": "swiglu", "audio_config": WHISPER},
     {1: 1_374_707_712, 2: 745_275_392}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "width", "fields", "want"), BUILT, ids=lambda v: str(v)[:16])
def test_encoders_of_a_family(
    family: str, width: int, fields: dict[str, Any], want: dict[int, int]
) -> None:
    (encoder,) = multimodal_shape(family, width, **fields).encoders
    for tensor_parallel_size, want_bytes in want.items():
        sharded_elements = -(-encoder.sharded_elements // tensor_parallel_size)
        rank_elements = sharded_elements + encoder.replicated_elements
        assert 2 * rank_elements == pytest.approx(want_bytes, rel=1e-4), tensor_parallel_size
    assert not encoder.estimated


WITH_ROTARY_TABLE: list[tuple[str, int, dict[str, Any], int, int]] = [
    ("exaone4_5", 5120, {
        "depth": 28, "fullatt_block_indexes": [6, 13, 20, 27], "hidden_size": 2048,
        "intermediate_size": 5120, "num_heads": 32, "num_key_value_heads": 8,
        "out_hidden_size": 5120, "patch_size": 14, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }, 32, 2_572_965_888),
    ("glm4v_moe", 4096, {
        "depth": 24, "hidden_size": 1536, "image_size": 336, "intermediate_size": 10944,
        "num_heads": 12, "out_hidden_size": 4096, "patch_size": 14, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }, 64, 1_717_368_320),
    ("glm_ocr", 1536, {
        "depth": 24, "hidden_size": 1024, "image_size": 336, "intermediate_size": 4096,
        "num_heads": 16, "out_hidden_size": 1536, "patch_size": 14, "spatial_merge_size": 2,
        "temporal_patch_size": 2,
    }, 32, 863_521_792),
]  # fmt: skip


@pytest.mark.parametrize(
    ("family", "width", "vision", "rotary_width", "want_bytes"), WITH_ROTARY_TABLE
)
def test_encoders_with_a_table_of_cosines_and_sines(
    family: str, width: int, vision: dict[str, Any], rotary_width: int, want_bytes: int
) -> None:
    (encoder,) = multimodal_shape(family, width, vision_config=vision).encoders
    table = 8192 * rotary_width
    assert 2 * (encoder.elements - table) == pytest.approx(want_bytes, rel=1e-5)


def test_encoders_of_gemma_3n_have_defaults() -> None:
    shape = multimodal_shape(
        "gemma3n",
        2048,
        vision_config={"model_type": "gemma3n_vision"},
        audio_config={"model_type": "gemma3n_audio"},
    )
    assert 2 * sum(encoder.elements for encoder in shape.encoders) == pytest.approx(
        1_966_598_888, rel=1e-4
    )
    assert 2 * sum(encoder.sharded_elements for encoder in shape.encoders) == 2 * 7_798_784


def test_every_gpu_replicates_the_encoders_of_gemma_4() -> None:
    shape = multimodal_shape(
        "gemma4",
        2560,
        vision_config={"model_type": "gemma4_vision", "hidden_size": 768, "patch_size": 16,
                       "intermediate_size": 3072, "num_attention_heads": 12,
                       "num_hidden_layers": 16},
        audio_config={"model_type": "gemma4_audio", "hidden_size": 1024, "num_hidden_layers": 12},
    )  # fmt: skip
    assert [encoder.sharded_elements for encoder in shape.encoders] == [0, 0]
    elements = sum(encoder.elements for encoder in shape.encoders)
    assert 2 * elements == pytest.approx(956_173_848, rel=1e-5)


def test_the_language_model_of_a_multimodal_family_has_no_encoders() -> None:
    shape = multimodal_shape(
        "qwen3_5", 4096, architectures=["Qwen3_5ForCausalLM"], vision_config={"depth": 27}
    )
    assert shape.encoders == ()


def test_an_encoder_of_an_unknown_family_is_an_estimate() -> None:
    shape = multimodal_shape("novel", 4096, audio_config={**WHISPER, "model_type": "novel"})
    (encoder,) = shape.encoders
    assert encoder.estimated
    assert encoder.sharded_elements == 0
    assert "encoder" in (shape.estimated or "")


FP8 = {"quant_method": "fp8", "activation_scheme": "static", "weight_block_size": None}
PIXTRAL = {
    "model_type": "pixtral", "hidden_size": 1024, "head_dim": 64, "intermediate_size": 4096,
    "num_attention_heads": 16, "num_hidden_layers": 24, "num_channels": 3, "patch_size": 14,
}  # fmt: skip


@pytest.mark.parametrize(
    ("what", "ignored", "quantized"),
    [
        ("no layer of the encoder", ["lm_head"], True),
        ("the encoder's name, which matches no layer", ["model.vision_tower", "lm_head"], True),
        ("a layer of the encoder", ["model.visual.blocks.0.attn.qkv", "lm_head"], False),
    ],
)
def test_fp8_ignores_layers_of_an_encoder_only_by_their_full_names(
    what: str, ignored: list[str], quantized: bool
) -> None:
    (encoder,) = multimodal_shape(
        "mistral3",
        5120,
        spatial_merge_size=2,
        vision_config=PIXTRAL,
        quantization_config={**FP8, "modules_to_not_convert": ignored},
    ).encoders
    assert (encoder.stored is not None) is quantized, what
