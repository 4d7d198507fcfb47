"""Vision encoders of single families, each as its module of vLLM 0.32.0 builds it."""

from typing import Final

from tonnage.checkpoint.encoders.layers import (
    RMS_NORMS,
    count_image_patches,
    count_patch_embedding,
    count_two_layers,
    make_sharded_encoder,
    read_encoder_layers,
)
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Encoder

_OVIS_INDICATORS: Final = 5
"""Entries of Ovis' visual vocabulary that mark positions instead of image content (ovis.py)."""


def read_aria(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """aria.py: replicated queries attend to the patches; the MLP after them is sharded."""
    encoder = read_encoder_layers(vision)
    width = encoder.width
    queries = config.named_counts("projector_patch_to_query_dict")
    resampler = max(queries, default=256) * width + 8 * width * width + 12 * width
    before = count_patch_embedding(vision, width) + (count_image_patches(vision) + 1) * width
    return make_sharded_encoder(encoder, hidden_size * (width + hidden_size), before + resampler)


def read_gemma3n(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """gemma3n_mm.py: a convolutional network of timm, replicated, and sharded embeddings."""
    width, rows = vision.positive("hidden_size"), vision.count("vocab_size")
    return Encoder(width * (rows + hidden_size), vision.count("backbone_elements") + 2 * width)


def read_minimax_m3_vision(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """models/minimax_m3: a projector, then an MLP that merges patches; both are sharded."""
    encoder = read_encoder_layers(vision)
    compression = vision.nested("img_token_compression_config")
    if compression is None:
        compression = config.nested("img_token_compression_config") or vision
    merge = compression.count("spatial_merge_size") or 2
    frames = compression.count("temporal_patch_size") or 1
    inner = config.count("projector_hidden_size") or hidden_size
    projectors = count_two_layers(encoder.width, inner, hidden_size)
    projectors += count_two_layers(hidden_size * merge * merge, inner, hidden_size)
    patches = count_patch_embedding(vision.without("temporal_patch_size"), encoder.width) * frames
    before = patches + 2 * encoder.width + 2 * hidden_size
    return make_sharded_encoder(encoder, projectors - 2 * hidden_size, before)


def read_molmo(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """molmo.py: CLIP layers, attention over four patches, a gated projector; all are sharded."""
    encoder = read_encoder_layers(vision)
    width, inner = encoder.width, config.positive("intermediate_size") // 2
    pooling = 7 * width * width + 3 * width
    projector = 2 * inner * width + inner * hidden_size
    before = count_patch_embedding(vision, width) + (count_image_patches(vision) + 9) * width
    return make_sharded_encoder(encoder, pooling + projector, before)


def read_muse_glimmer(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """muse_glimmer.py: attention is sharded, MLPs and projector are replicated."""
    encoder = read_encoder_layers(vision)
    merge = vision.count("merge_size") or 2
    inner, width = config.positive("projector_hidden_size"), encoder.width
    patches = count_patch_embedding(vision, width) * (vision.count("patch_temporal") or 1)
    positions = vision.count("max_position_embeddings") * width
    projector = inner * (merge * merge * width + inner + hidden_size)
    other = encoder.replicated_elements + patches + positions + 4 * width + projector
    return Encoder(encoder.attention_elements, encoder.mlp_elements + other, encoder.heads or None)


def read_ovis(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """ovis.py: a head maps patches to a visual vocabulary with embeddings; both are replicated."""
    backbone = vision.nested("backbone_config") or vision
    gated = backbone.text("model_type") == "aimv2"
    if gated:
        encoder = read_encoder_layers(backbone, 3, RMS_NORMS, biased=backbone.flag("use_bias"))
    else:
        encoder = read_encoder_layers(backbone)
    width, stride = encoder.width, vision.count("hidden_stride") or 1
    vocab_size = vision.positive("vocab_size")
    head = (vocab_size - _OVIS_INDICATORS) * (width * stride * stride + 2)
    before = count_patch_embedding(backbone, width) + (count_image_patches(backbone) + 3) * width
    return make_sharded_encoder(encoder, 0, before + head + vocab_size * hidden_size)


def read_phi3v(config: ConfigFields, vision: ConfigFields, hidden_size: int) -> Encoder:
    """phi3v.py: the CLIP layers without the last, a replicated projector, and text embeddings in
    addition to those of the language model."""
    layers = read_encoder_layers(vision).layers - 1
    encoder = read_encoder_layers(vision, layers=layers)
    joined = 4 * encoder.width
    positions = count_image_patches(vision) + 1
    before = count_patch_embedding(vision, encoder.width) + positions * (encoder.width + 4)
    projector = count_two_layers(joined, hidden_size, hidden_size) + 2 * joined
    embeddings = config.positive("vocab_size") * hidden_size
    return make_sharded_encoder(encoder, embeddings, before + 3 * encoder.width + projector)
