"""Vision towers that few families have, each as its module of vLLM 0.32.0 builds it."""

from typing import Final

from tonnage.checkpoint.encoders import (
    RMS_NORMS,
    count_patches,
    count_places,
    make_tower,
    read_encoder,
    two_layers,
)
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Tower

_OVIS_INDICATORS: Final = 5
"""Entries of Ovis' visual vocabulary that stand for places, not for what is seen (ovis.py)."""


def read_aria(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """aria.py: queries attend to the patches, whole on every GPU; an MLP behind is sharded."""
    encoder = read_encoder(vision)
    width = encoder.width
    queries = whole.named_counts("projector_patch_to_query_dict")
    attending = max(queries, default=256) * width + 8 * width * width + 12 * width
    before = count_patches(vision, width) + (count_places(vision) + 1) * width
    return make_tower(encoder, hidden_size * (width + hidden_size), before + attending)


def read_gemma3n(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """gemma3n_mm.py: a convolutional network of timm, and embeddings of their own, sharded."""
    width, rows = vision.positive("hidden_size"), vision.count("vocab_size")
    return Tower(width * (rows + hidden_size), vision.count("backbone_elements") + 2 * width)


def read_minimax_m3_vision(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """models/minimax_m3: patches are projected, then joined by an MLP; both are sharded."""
    encoder = read_encoder(vision)
    compression = vision.nested("img_token_compression_config")
    if compression is None:
        compression = whole.nested("img_token_compression_config") or vision
    merge, deep = (
        compression.count("spatial_merge_size") or 2,
        compression.count("temporal_patch_size"),
    )
    inner = whole.count("projector_hidden_size") or hidden_size
    projectors = two_layers(encoder.width, inner, hidden_size)
    projectors += two_layers(hidden_size * merge * merge, inner, hidden_size)
    patches = count_patches(vision.without("temporal_patch_size"), encoder.width) * (deep or 1)
    before = patches + 2 * encoder.width + 2 * hidden_size
    return make_tower(encoder, projectors - 2 * hidden_size, before)


def read_molmo(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """molmo.py: layers of CLIP, attention over four patches, a gated projector, all sharded."""
    encoder = read_encoder(vision)
    width, inner = encoder.width, whole.positive("intermediate_size") // 2
    pooling = 7 * width * width + 3 * width
    projector = 2 * inner * width + inner * hidden_size
    before = count_patches(vision, width) + (count_places(vision) + 9) * width
    return make_tower(encoder, pooling + projector, before)


def read_muse_glimmer(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """muse_glimmer.py: attention is sharded, MLPs and projector are not."""
    encoder = read_encoder(vision)
    merge = vision.count("merge_size") or 2
    inner, width = whole.positive("projector_hidden_size"), encoder.width
    patches = count_patches(vision, width) * (vision.count("patch_temporal") or 1)
    places = vision.count("max_position_embeddings") * width
    projector = inner * (merge * merge * width + inner + hidden_size)
    around = encoder.whole + patches + places + 4 * width + projector
    return Tower(encoder.attention_elements, encoder.mlp_elements + around, encoder.heads or None)


def read_ovis(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """ovis.py: patches become words of a visual vocabulary, embedded as text is; both are whole."""
    backbone = vision.nested("backbone_config") or vision
    gated = backbone.text("model_type") == "aimv2"
    if gated:
        encoder = read_encoder(backbone, 3, RMS_NORMS, biased=backbone.flag("use_bias"))
    else:
        encoder = read_encoder(backbone)
    width, stride = encoder.width, vision.count("hidden_stride") or 1
    words = vision.positive("vocab_size")
    seen = words - _OVIS_INDICATORS
    head = seen * (width * stride * stride + 2)
    before = count_patches(backbone, width) + (count_places(backbone) + 3) * width
    return make_tower(encoder, 0, before + head + words * hidden_size)


def read_phi3v(whole: ConfigFields, vision: ConfigFields, hidden_size: int) -> Tower:
    """phi3v.py: layers of CLIP up to the last but one, a whole projector, and embeddings of text
    beside those of the language model."""
    layers = read_encoder(vision).layers - 1
    encoder = read_encoder(vision, layers=layers)
    joined = 4 * encoder.width
    places = count_places(vision) + 1
    before = count_patches(vision, encoder.width) + places * (encoder.width + 4)
    projector = two_layers(joined, hidden_size, hidden_size) + 2 * joined
    embeddings = whole.positive("vocab_size") * hidden_size
    return make_tower(encoder, embeddings, before + 3 * encoder.width + projector)
