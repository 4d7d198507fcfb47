"""The transformer layers of an encoder of images or sound, and what most encoders put around them.

Weights that tensor parallelism splits and weights that lie whole on every GPU are counted apart:
the biases of row-parallel layers and the norms are whole, those of column-parallel layers split.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Tower

_ROTARY_POSITIONS: Final = 8192
"""Rows of the table of cosines and sines of Qwen's and GLM's encoders (get_rope in qwen2_vl.py)."""

LAYER_NORMS: Final = 4
"""Vectors of two norms with a weight and a bias each."""

RMS_NORMS: Final = 2
"""Vectors of two norms with a weight each."""


@dataclass(frozen=True, slots=True)
class Encoder:
    """Layers of `width`; `attention` is the width of all heads together, `kv` that of KV heads."""

    layers: int
    width: int
    inner: int
    heads: int
    attention: int
    kv: int
    mlp_matrices: int = 2
    norms: int = LAYER_NORMS
    biased: bool = True

    @property
    def attention_elements(self) -> int:
        """Matrices of attention and the biases of queries, keys and values, in all layers."""
        biases = self.attention + 2 * self.kv if self.biased else 0
        matrices = 2 * self.width * (self.attention + self.kv)
        return self.layers * (matrices + biases)

    @property
    def mlp_elements(self) -> int:
        """Matrices of the MLP and the biases of all but the last, in all layers."""
        biases = (self.mlp_matrices - 1) * self.inner if self.biased else 0
        return self.layers * (self.mlp_matrices * self.width * self.inner + biases)

    @property
    def sharded(self) -> int:
        """Elements that tensor parallelism splits."""
        return self.attention_elements + self.mlp_elements

    @property
    def whole(self) -> int:
        """Elements that each GPU keeps: norms and the biases of output layers."""
        outputs = 2 if self.biased else 0
        return self.layers * (self.norms + outputs) * self.width

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.attention // self.heads if self.heads else 0

    @property
    def rotary_table(self) -> int:
        """Cosines and sines for half a head."""
        return _ROTARY_POSITIONS * (self.head_dim // 2)


def read_encoder(
    config: ConfigFields,
    mlp_matrices: int = 2,
    norms: int = LAYER_NORMS,
    biased: bool = True,
    layers: int | None = None,
) -> Encoder:
    """The layers that an encoder's config describes. Raises CheckpointError."""
    count = config.count("depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    width = config.count("embed_dim", "vt_hidden_size", "hidden_size", "width")
    given = config.count("intermediate_size", "vt_intermediate_size")
    heads = config.count("num_heads", "num_attention_heads", "vt_num_attention_heads", "heads")
    head_dim = config.optional_positive("head_dim")
    attention = heads * head_dim if head_dim else width
    kv_heads = config.count("num_key_value_heads") or heads
    return Encoder(
        layers=count if layers is None else layers,
        width=width,
        inner=given or int(_mlp_ratio(config) * width),
        heads=heads,
        attention=attention,
        kv=attention * kv_heads // heads if heads else attention,
        mlp_matrices=mlp_matrices,
        norms=norms,
        biased=biased,
    )


def make_tower(encoder: Encoder, sharded: int, whole: int) -> Tower:
    """The tower of an encoder that is split, and what stands before and after it."""
    return Tower(
        sharded_elements=encoder.sharded + sharded,
        replicated_elements=encoder.whole + whole,
        heads=encoder.heads or None,
        inner=encoder.inner or None,
    )


def make_whole_tower(encoder: Encoder, around: int) -> Tower:
    """The tower of an encoder that every GPU keeps whole."""
    return Tower(0, encoder.sharded + encoder.whole + around)


def count_patches(vision: ConfigFields, width: int) -> int:
    """The convolution that turns patches of pixels into vectors."""
    patch = read_side(vision, "patch_size") or 14
    channels = vision.count("in_channels", "in_chans", "num_channels") or 3
    return width * channels * patch * patch * (vision.count("temporal_patch_size") or 1)


def count_places(vision: ConfigFields) -> int:
    """Patches of an image of the largest size."""
    return (read_side(vision, "image_size") // (read_side(vision, "patch_size") or 14)) ** 2


def read_side(vision: ConfigFields, name: str) -> int:
    """A length that is the same up and across, given once or for both; 0 when absent."""
    if isinstance(vision.value(name), list):
        return max(vision.integers(name), default=0)
    return vision.count(name)


def two_layers(inputs: int, inner: int, outputs: int) -> int:
    """A projector of two layers with biases."""
    return inputs * inner + inner + inner * outputs + outputs


def _mlp_ratio(config: ConfigFields) -> float:
    """Inner size of the MLP in widths; some configs write it as a fraction."""
    ratio = config.value("mlp_ratio")
    if ratio is None:
        return 4
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64:
        raise config.wrong("mlp_ratio", ratio, "a number above 0, at most 64")
    return ratio
