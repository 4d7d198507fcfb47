"""The towers that a multimodal model has beside its language model."""

from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Tower

_GATED: Final = frozenset({"pixtral", "gemma4_vision", "qwen2_5_vl"})
"""Towers whose MLP has three matrices."""


def read_towers(config: ConfigFields) -> tuple[Tower, ...]:
    """The vision tower and its projector, none for a text model.

    An estimate from the usual form: attention of four square matrices, an MLP, and a merger that
    joins neighbouring patches, once more for every layer that feeds the language model directly.
    Raises CheckpointError.
    """
    vision = config.nested("vision_config")
    if vision is None:
        return ()
    layers = vision.count("depth", "num_hidden_layers", "vt_num_hidden_layers")
    width = vision.count("embed_dim", "hidden_size", "vt_hidden_size")
    inner = vision.count("intermediate_size", "vt_intermediate_size") or 4 * width
    matrices = 3 if vision.text("model_type") in _GATED else 2
    tower = layers * (4 * width * width + matrices * width * inner)
    merge = vision.count("spatial_merge_size")
    merged = width * merge * merge
    out = vision.count("out_hidden_size")
    mergers = 1 + len(vision.integers("deepstack_visual_indexes"))
    return (Tower(tower + mergers * (merged * merged + merged * out)),)
