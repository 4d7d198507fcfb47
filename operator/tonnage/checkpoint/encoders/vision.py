"""Vision encoders by family: transformer layers, and the merger and projector of their patches.

Each reader names the module of vLLM 0.32.0 that it follows (vllm/model_executor/models).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.encoders.layers import (
    RMS_NORMS,
    EncoderLayers,
    count_image_patches,
    count_patch_embedding,
    count_two_layers,
    make_replicated_encoder,
    make_sharded_encoder,
    read_encoder_layers,
)
from tonnage.checkpoint.encoders.single_family import (
    read_aria,
    read_gemma3n,
    read_minimax_m3_vision,
    read_molmo,
    read_muse_glimmer,
    read_ovis,
    read_phi3v,
)
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Encoder

Reader = Callable[[ConfigFields, ConfigFields, int], Encoder]
"""Reads an encoder from the root config, its vision config and the language model's width."""

_FEATURE_LAYERS: Final = {"llava": -2, "llava_next": -2, "llava_next_video": -2}
"""The layer whose output feeds the language model by default; -1 for families not listed."""


def read_vision_encoder(
    config: ConfigFields, vision: ConfigFields, family: str, hidden_size: int
) -> Encoder:
    """Return the vision encoder; for an unknown family, an estimate with the usual layout.

    Raises CheckpointError.
    """
    model_type = vision.text("model_type") or ""
    reader = _READERS.get(family) or _READERS.get(model_type) or _read_unknown
    return reader(config, vision, hidden_size)


def _read_qwen(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """qwen2_vl.py, qwen2_5_vl.py, qwen3_vl.py, exaone4_5.py: mergers of adjacent patches, one
    more for each layer that feeds the language model directly (deepstack)."""
    gated, positions = "fullatt_block_indexes" in vision, vision.count("num_position_embeddings")
    encoder = read_encoder_layers(vision, 3, RMS_NORMS) if gated else read_encoder_layers(vision)
    width, merge = encoder.width, vision.count("spatial_merge_size") or 2
    merged = width * merge * merge
    qwen2_out = vision.count("hidden_size") if "embed_dim" in vision else 0  # Qwen2-VL
    out = vision.count("out_hidden_size") or qwen2_out or hidden_size
    levels = len(vision.integers("deepstack_visual_indexes"))
    norms = (width if gated else 2 * width) + levels * 2 * merged
    patches = count_patch_embedding(vision, width) + (width if positions else 0)
    other = patches + positions * width + norms + (1 + levels) * out + encoder.rotary_table
    sharded = (1 + levels) * (merged * (merged + out) + merged)
    return replace(make_sharded_encoder(encoder, sharded, other), deepstack_levels=levels)


def _count_siglip_embedding(vision: ConfigFields, encoder: EncoderLayers) -> int:
    """Count siglip.py's and clip.py's patch and position embeddings, position ids and norms."""
    width, positions = encoder.width, count_image_patches(vision)
    if vision.text("model_type") == "clip_vision_model":  # a vector for the image, no biases
        positions, vectors = positions + 1, 3 * width
    else:
        vectors = width
    final_norm = 2 * width if encoder.layers == read_encoder_layers(vision).layers else 0
    return count_patch_embedding(vision, width) + positions * (width + 4) + vectors + final_norm


def _read_used_layers(config: ConfigFields, vision: ConfigFields, family: str) -> EncoderLayers:
    """Return the layers up to the deepest feature layer (llava.py _get_num_hidden_layers)."""
    layers = read_encoder_layers(vision).layers
    value = config.value("vision_feature_layer")
    values = value if isinstance(value, list) else [value]
    features = [layer for layer in values if isinstance(layer, int) and not isinstance(layer, bool)]
    indexes = [
        layer if layer >= 0 else layers + layer + 1
        for layer in features or [_FEATURE_LAYERS.get(family, -1)]
    ]
    return read_encoder_layers(vision, layers=min(layers, max(0, *indexes, 0)))


def _read_siglip(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """siglip.py, clip.py with the sharded two-layer projector of llava.py."""
    encoder = _read_used_layers(config, vision, config.text("model_type") or "")
    projector = count_two_layers(encoder.width, hidden_size, hidden_size) - hidden_size
    return make_sharded_encoder(
        encoder, projector, _count_siglip_embedding(vision, encoder) + hidden_size
    )


def _read_llava_onevision(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """llava_onevision.py, llava_next_video.py: the projector is replicated."""
    if vision.text("model_type") == "pixtral":
        return _read_pixtral(config, vision, hidden_size)
    encoder = _read_used_layers(config, vision, config.text("model_type") or "")
    projector = count_two_layers(encoder.width, hidden_size, hidden_size) + hidden_size
    return make_sharded_encoder(encoder, 0, _count_siglip_embedding(vision, encoder) + projector)


def _read_gemma3(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """siglip.py with the projector of gemma3_mm.py: one matrix, replicated."""
    encoder = read_encoder_layers(vision)
    projector = encoder.width * (hidden_size + 1)
    return make_sharded_encoder(encoder, 0, _count_siglip_embedding(vision, encoder) + projector)


def _read_paligemma(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """siglip.py with the projector of paligemma.py: one layer, replicated."""
    encoder = read_encoder_layers(vision)
    out = config.count("projection_dim") or vision.count("projection_dim") or hidden_size
    projector = encoder.width * out + out
    return make_sharded_encoder(encoder, 0, _count_siglip_embedding(vision, encoder) + projector)


def _read_idefics(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """idefics2_vision_model.py with the connector of idefics3.py: one matrix, replicated."""
    encoder = read_encoder_layers(vision)
    scale = config.count("scale_factor") or 2
    before = (
        count_patch_embedding(vision, encoder.width)
        + (count_image_patches(vision) + 3) * encoder.width
    )
    return make_sharded_encoder(encoder, 0, before + scale * scale * encoder.width * hidden_size)


def _read_cohere2(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """siglip.py with the projector of cohere2_vision.py: gated, sharded."""
    encoder, factor = read_encoder_layers(vision), config.count("downsample_factor") or 2
    stacked = config.count("alignment_intermediate_size") or 36864
    joined = encoder.width * factor * factor
    projector = joined * stacked + stacked + stacked // 2 * hidden_size
    return make_sharded_encoder(
        encoder, projector, _count_siglip_embedding(vision, encoder) + hidden_size
    )


def _read_gemma4(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """gemma4_mm.py runs the encoder of transformers, replicated."""
    encoder = read_encoder_layers(vision, 3, norms=4, biased=False)
    positions = 2 * vision.count("position_embedding_size") * encoder.width
    other = count_patch_embedding(vision, encoder.width) + positions + encoder.width * hidden_size
    head_norms = encoder.layers * 2 * encoder.head_dim
    return make_replicated_encoder(encoder, other + head_norms + 2 * encoder.width)


def _read_pixtral(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """pixtral.py with the projector of llava.py or, after a patch merger, of mistral3.py."""
    encoder = read_encoder_layers(vision, 3, RMS_NORMS, biased=False)
    merge = config.count("spatial_merge_size") or 1
    merger = encoder.width * merge * merge * encoder.width if merge > 1 else 0
    has_bias = config.flag("multimodal_projector_bias", default=merge == 1)
    bias = hidden_size if has_bias else 0
    projector = encoder.width * hidden_size + hidden_size * hidden_size + bias
    norms = encoder.width * (2 if merge > 1 else 1)
    before = count_patch_embedding(vision, encoder.width)
    return make_sharded_encoder(encoder, projector, before + merger + norms + bias)


def _read_llama4(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """mllama4.py: everything is sharded except positions and norms."""
    encoder = read_encoder_layers(vision)
    inner, out = vision.positive("projector_input_dim"), vision.positive("projector_output_dim")
    adapter = encoder.inner * inner + inner * out
    projector = vision.positive("vision_output_dim") * hidden_size
    sharded = adapter + projector + count_patch_embedding(vision, encoder.width)
    return make_sharded_encoder(encoder, sharded, (count_image_patches(vision) + 6) * encoder.width)


def _read_moonvit(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """moonvit.py, kimi_k25_vit.py: the projector is replicated."""
    encoder = read_encoder_layers(vision)
    joined = encoder.width
    for side in vision.integers("merge_kernel_size") or (2, 2):
        joined *= side
    height = vision.count("init_pos_emb_height") or 64
    positions = height * (vision.count("init_pos_emb_width") or height) * encoder.width
    other = count_patch_embedding(vision, encoder.width) + 5 * encoder.width + positions
    return make_sharded_encoder(encoder, 0, other + count_two_layers(joined, joined, hidden_size))


def _read_internvit(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """intern_vit.py with the replicated projector of internvl.py."""
    normed = vision.flag("qk_normalization")
    encoder = read_encoder_layers(vision, biased=vision.flag("qkv_bias", default=True) or normed)
    scales = encoder.layers * (4 if normed else 2) * encoder.width
    before = (
        count_patch_embedding(vision, encoder.width)
        + (count_image_patches(vision) + 3) * encoder.width
    )
    return make_sharded_encoder(
        encoder, 0, before + scales + _count_shuffled_projector(encoder.width, hidden_size)
    )


def _read_internvl(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """interns1_vit.py: the layers' MLPs are sharded, attention is replicated."""
    encoder = read_encoder_layers(vision, biased=vision.flag("attention_bias"))
    output_biases = 0 if encoder.biased else encoder.layers * 2 * encoder.width
    scales = encoder.layers * 2 * encoder.width
    before = (
        count_patch_embedding(vision, encoder.width)
        + (count_image_patches(vision) + 3) * encoder.width
    )
    other = before + output_biases + scales + _count_shuffled_projector(encoder.width, hidden_size)
    replicated = encoder.attention_elements + encoder.replicated_elements + other
    input_biases = 0 if encoder.biased else encoder.layers * encoder.inner
    return Encoder(encoder.mlp_elements + input_biases, replicated, inner=encoder.inner or None)


def _count_shuffled_projector(width: int, hidden_size: int) -> int:
    """Count the weights of a norm over four merged patches and of the projector after it."""
    return 8 * width + count_two_layers(4 * width, hidden_size, hidden_size)


def _read_glm4v(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """glm4_1v.py: `intermediate_size` is the merger's; the layers' MLPs have the output's size."""
    base, out = (
        read_encoder_layers(vision, 3, RMS_NORMS, biased=False),
        vision.positive("out_hidden_size"),
    )
    encoder = replace(base, inner=out)
    positions = count_image_patches(vision)
    before = (positions + 3) * base.width + 4 * positions
    return _make_glm_encoder(encoder, vision, base.inner, before)


def _read_glm_ocr(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """glm_ocr.py: like glm4_1v.py, with biases, query and key norms, and no positions."""
    encoder = read_encoder_layers(vision, 3, RMS_NORMS)
    before = 2 * encoder.width + encoder.layers * 2 * encoder.head_dim
    return _make_glm_encoder(encoder, vision, encoder.inner, before)


def _make_glm_encoder(
    encoder: EncoderLayers, vision: ConfigFields, inner: int, before: int
) -> Encoder:
    """Return an encoder with a convolution that merges adjacent patches, and a gated merger."""
    out, merge = vision.positive("out_hidden_size"), vision.count("spatial_merge_size") or 2
    downsampling = encoder.width * out * merge * merge + 3 * out
    other = (
        count_patch_embedding(vision, encoder.width) + before + downsampling + encoder.rotary_table
    )
    return make_sharded_encoder(encoder, out * out + 3 * out * inner, other)


def _read_paddle_ocr(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """paddleocr_vl.py: siglip.py with a replicated projector that merges four patches."""
    encoder = read_encoder_layers(vision)
    projector = 2 * encoder.width + count_two_layers(
        4 * encoder.width, 4 * encoder.width, hidden_size
    )
    return make_sharded_encoder(encoder, 0, _count_siglip_embedding(vision, encoder) + projector)


def _read_unknown(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """Estimate the usual layers and a two-layer projector, all of them replicated."""
    encoder = read_encoder_layers(vision)
    if not encoder.layers or not encoder.width:
        return Encoder(0)
    before = (
        count_patch_embedding(vision, encoder.width) + count_image_patches(vision) * encoder.width
    )
    projector = count_two_layers(encoder.width, hidden_size, hidden_size)
    return replace(make_replicated_encoder(encoder, before + projector), estimated=True)


_READERS: Final[Mapping[str, Reader]] = {
    "qwen2_vl": _read_qwen,
    "qwen2_5_vl": _read_qwen,
    "qwen2_5_omni": _read_qwen,
    "qwen3_vl": _read_qwen,
    "qwen3_vl_moe": _read_qwen,
    "qwen3_omni_moe": _read_qwen,
    "qwen3_5": _read_qwen,
    "qwen3_5_moe": _read_qwen,
    "exaone4_5": _read_qwen,
    "aria": read_aria,
    "gemma3": _read_gemma3,
    "gemma3n": read_gemma3n,
    "gemma4": _read_gemma4,
    "paligemma": _read_paligemma,
    "idefics3": _read_idefics,
    "smolvlm": _read_idefics,
    "cohere2_vision": _read_cohere2,
    "llava_onevision": _read_llava_onevision,
    "llava_next_video": _read_llava_onevision,
    "llama4": _read_llama4,
    "kimi_vl": _read_moonvit,
    "kimi_k25": _read_moonvit,
    "moonvit": _read_moonvit,
    "glm4v": _read_glm4v,
    "glm4v_moe": _read_glm4v,
    "glm_ocr": _read_glm_ocr,
    "internvl": _read_internvl,
    "paddleocr_vl": _read_paddle_ocr,
    "minimax_m3_vl": read_minimax_m3_vision,
    "molmo": read_molmo,
    "muse_glimmer": read_muse_glimmer,
    "ovis": read_ovis,
    "phi3_v": read_phi3v,
    "pixtral": _read_pixtral,
    "intern_vit_6b": _read_internvit,
    "siglip_vision_model": _read_siglip,
    "clip_vision_model": _read_siglip,
}
"""Readers by the `model_type` of the root config or of the vision config."""
