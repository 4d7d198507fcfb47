"""Vision towers by family: an encoder of transformer layers, and what joins and projects patches.

Each reader names the module of vLLM 0.32.0 it follows (vllm/model_executor/models).
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.encoders import (
    RMS_NORMS,
    Encoder,
    count_patches,
    count_places,
    make_tower,
    make_whole_tower,
    read_encoder,
    two_layers,
)
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Tower
from tonnage.checkpoint.unusual_towers import (
    read_aria,
    read_gemma3n,
    read_minimax_m3_vision,
    read_molmo,
    read_muse_glimmer,
    read_ovis,
    read_phi3v,
)

Reader = Callable[[ConfigFields, ConfigFields, int], Tower]
"""From the whole config, its vision part and the language model's width to the tower."""

_FEATURE_LAYERS: Final = {"llava": -2, "llava_next": -2, "llava_next_video": -2}
"""Which layer's output the language model sees, where the config is silent; the last one else."""


def read_vision_tower(
    whole: ConfigFields, vision: ConfigFields, family: str, hidden_size: int
) -> Tower:
    """The vision tower; one of an unknown family is estimated from the usual form.

    Raises CheckpointError.
    """
    kind = vision.text("model_type") or ""
    reader = _READERS.get(family) or _READERS.get(kind) or _read_unknown
    return reader(whole, vision, hidden_size)


def _read_qwen(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """qwen2_vl.py, qwen2_5_vl.py, qwen3_vl.py, exaone4_5.py: mergers join neighbouring patches;
    layers that feed the language model directly (deepstack) have one each."""
    gated, learned = "fullatt_block_indexes" in vision, vision.count("num_position_embeddings")
    encoder = read_encoder(vision, 3, RMS_NORMS) if gated else read_encoder(vision)
    width, merge = encoder.width, vision.count("spatial_merge_size") or 2
    merged = width * merge * merge
    named = vision.count("hidden_size") if "embed_dim" in vision else 0  # Qwen2-VL
    out = vision.count("out_hidden_size") or named or hidden_size
    levels = len(vision.integers("deepstack_visual_indexes"))
    norms = (width if gated else 2 * width) + levels * 2 * merged
    patches = count_patches(vision, width) + (width if learned else 0)
    tower = make_tower(
        encoder,
        sharded=(1 + levels) * (merged * (merged + out) + merged),
        whole=patches + learned * width + norms + (1 + levels) * out + encoder.rotary_table,
    )
    return replace(tower, deepstack_levels=levels)


def _before_siglip(vision: ConfigFields, encoder: Encoder) -> int:
    """siglip.py, clip.py: patches, their places with the numbers of these, the norms around."""
    width, places = encoder.width, count_places(vision)
    if vision.text("model_type") == "clip_vision_model":  # a vector for the whole image, no biases
        places, vectors = places + 1, 3 * width
    else:
        vectors = width
    last = 2 * width if encoder.layers == read_encoder(vision).layers else 0
    return count_patches(vision, width) + places * (width + 4) + vectors + last


def _read_seen(whole: ConfigFields, vision: ConfigFields, family: str) -> Encoder:
    """The layers up to the deepest whose output is used (llava.py _get_num_hidden_layers)."""
    layers = read_encoder(vision).layers
    given = whole.value("vision_feature_layer")
    chosen = given if isinstance(given, list) else [given]
    deepest = [layer for layer in chosen if isinstance(layer, int) and not isinstance(layer, bool)]
    indexes = [
        layer if layer >= 0 else layers + layer + 1
        for layer in deepest or [_FEATURE_LAYERS.get(family, -1)]
    ]
    return read_encoder(vision, layers=min(layers, max(0, *indexes, 0)))


def _read_siglip(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """siglip.py, clip.py with the projector of llava.py: two layers, sharded."""
    encoder = _read_seen(whole, vision, whole.text("model_type") or "")
    return make_tower(
        encoder,
        sharded=two_layers(encoder.width, hidden_size, hidden_size) - hidden_size,
        whole=_before_siglip(vision, encoder) + hidden_size,
    )


def _read_llava_onevision(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """llava_onevision.py, llava_next_video.py: the projector is whole on every GPU."""
    if vision.text("model_type") == "pixtral":
        return _read_pixtral(whole, vision, hidden_size)
    encoder = _read_seen(whole, vision, whole.text("model_type") or "")
    projector = two_layers(encoder.width, hidden_size, hidden_size) + hidden_size
    return make_tower(encoder, 0, _before_siglip(vision, encoder) + projector)


def _read_gemma3(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """siglip.py with the projector of gemma3_mm.py: one matrix, whole on every GPU."""
    encoder = read_encoder(vision)
    projector = encoder.width * (hidden_size + 1)
    return make_tower(encoder, 0, _before_siglip(vision, encoder) + projector)


def _read_paligemma(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """siglip.py with the projector of paligemma.py: one layer, whole on every GPU."""
    encoder = read_encoder(vision)
    out = whole.count("projection_dim") or vision.count("projection_dim") or hidden_size
    projector = encoder.width * out + out
    return make_tower(encoder, 0, _before_siglip(vision, encoder) + projector)


def _read_idefics(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """idefics2_vision_model.py with the connector of idefics3.py: one matrix, whole."""
    encoder = read_encoder(vision)
    scale = whole.count("scale_factor") or 2
    before = count_patches(vision, encoder.width) + (count_places(vision) + 3) * encoder.width
    return make_tower(encoder, 0, before + scale * scale * encoder.width * hidden_size)


def _read_cohere2(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """siglip.py with the projector of cohere2_vision.py: gated, sharded."""
    encoder, factor = read_encoder(vision), whole.count("downsample_factor") or 2
    stacked = whole.count("alignment_intermediate_size") or 36864
    joined = encoder.width * factor * factor
    projector = joined * stacked + stacked + stacked // 2 * hidden_size
    return make_tower(encoder, projector, _before_siglip(vision, encoder) + hidden_size)


def _read_gemma4(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """gemma4_mm.py runs the tower of transformers, whole on every GPU."""
    encoder = read_encoder(vision, 3, norms=4, biased=False)
    positions = 2 * vision.count("position_embedding_size") * encoder.width
    around = count_patches(vision, encoder.width) + positions + encoder.width * hidden_size
    head_norms = encoder.layers * 2 * encoder.head_dim
    return make_whole_tower(encoder, around + head_norms + 2 * encoder.width)


def _read_pixtral(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """pixtral.py with the projector of llava.py, or that of mistral3.py, which merges first."""
    encoder = read_encoder(vision, 3, RMS_NORMS, biased=False)
    merge = whole.count("spatial_merge_size") or 1
    merger = encoder.width * merge * merge * encoder.width if merge > 1 else 0
    biased = whole.flag("multimodal_projector_bias", default=merge == 1)
    bias = hidden_size if biased else 0
    projector = encoder.width * hidden_size + hidden_size * hidden_size + bias
    norms = encoder.width * (2 if merge > 1 else 1)
    before = count_patches(vision, encoder.width)
    return make_tower(encoder, projector, before + merger + norms + bias)


def _read_llama4(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """mllama4.py: everything is sharded but positions and norms."""
    encoder = read_encoder(vision)
    inner, out = vision.positive("projector_input_dim"), vision.positive("projector_output_dim")
    adapter = encoder.inner * inner + inner * out
    projector = vision.positive("vision_output_dim") * hidden_size
    return make_tower(
        encoder,
        sharded=adapter + projector + count_patches(vision, encoder.width),
        whole=(count_places(vision) + 6) * encoder.width,
    )


def _read_moonvit(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """moonvit.py, kimi_k25_vit.py: the projector is whole on every GPU."""
    encoder = read_encoder(vision)
    joined = encoder.width
    for side in vision.integers("merge_kernel_size") or (2, 2):
        joined *= side
    height = vision.count("init_pos_emb_height") or 64
    positions = height * (vision.count("init_pos_emb_width") or height) * encoder.width
    around = count_patches(vision, encoder.width) + 5 * encoder.width + positions
    return make_tower(encoder, 0, around + two_layers(joined, joined, hidden_size))


def _read_internvit(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """intern_vit.py with the projector of internvl.py, whole on every GPU."""
    normed = vision.flag("qk_normalization")
    encoder = read_encoder(vision, biased=vision.flag("qkv_bias", default=True) or normed)
    scales = encoder.layers * (4 if normed else 2) * encoder.width
    before = count_patches(vision, encoder.width) + (count_places(vision) + 3) * encoder.width
    return make_tower(encoder, 0, before + scales + _shuffled(encoder.width, hidden_size))


def _read_internvl(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """interns1_vit.py: the layers' MLPs are split, attention is not."""
    encoder = read_encoder(vision, biased=vision.flag("attention_bias"))
    outputs = 0 if encoder.biased else encoder.layers * 2 * encoder.width
    scales = encoder.layers * 2 * encoder.width
    before = count_patches(vision, encoder.width) + (count_places(vision) + 3) * encoder.width
    around = before + outputs + scales + _shuffled(encoder.width, hidden_size)
    whole_elements = encoder.attention_elements + encoder.whole + around
    inputs = 0 if encoder.biased else encoder.layers * encoder.inner
    return Tower(encoder.mlp_elements + inputs, whole_elements, inner=encoder.inner or None)


def _shuffled(width: int, hidden_size: int) -> int:
    """The projector of four joined patches behind a norm of them."""
    return 8 * width + two_layers(4 * width, hidden_size, hidden_size)


def _read_glm4v(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """glm4_1v.py: `intermediate_size` is the merger's, layers are as wide inside as the output."""
    base, out = read_encoder(vision, 3, RMS_NORMS, biased=False), vision.positive("out_hidden_size")
    encoder = replace(base, inner=out)
    places = count_places(vision)
    before = (places + 3) * base.width + 4 * places
    return _glm_tower(encoder, vision, base.inner, before)


def _read_glm_ocr(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """glm_ocr.py: as glm4_1v.py with biases, norms of queries and keys, and no positions."""
    encoder = read_encoder(vision, 3, RMS_NORMS)
    before = 2 * encoder.width + encoder.layers * 2 * encoder.head_dim
    return _glm_tower(encoder, vision, encoder.inner, before)


def _glm_tower(encoder: Encoder, vision: ConfigFields, inner: int, before: int) -> Tower:
    """Patches, layers, a convolution that joins neighbours, and a gated merger."""
    out, merge = vision.positive("out_hidden_size"), vision.count("spatial_merge_size") or 2
    joining = encoder.width * out * merge * merge + 3 * out
    around = count_patches(vision, encoder.width) + before + joining + encoder.rotary_table
    return make_tower(encoder, out * out + 3 * out * inner, around)


def _read_paddle_ocr(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """paddleocr_vl.py: as siglip.py, with a projector that joins four patches, whole."""
    encoder = read_encoder(vision)
    projector = 2 * encoder.width + two_layers(4 * encoder.width, 4 * encoder.width, hidden_size)
    return make_tower(encoder, 0, _before_siglip(vision, encoder) + projector)


def _read_unknown(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """The usual form with a projector of two layers, all of it counted as whole on every GPU."""
    encoder = read_encoder(vision)
    if not encoder.layers or not encoder.width:
        return Tower(0)
    before = count_patches(vision, encoder.width) + count_places(vision) * encoder.width
    projector = two_layers(encoder.width, hidden_size, hidden_size)
    return replace(make_whole_tower(encoder, before + projector), estimated=True)


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
"""Readers by the model's type, else by that of its vision part."""
