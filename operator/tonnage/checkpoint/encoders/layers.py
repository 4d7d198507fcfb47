"""The transformer layers of a vision or audio encoder, and the parts that most encoders share.

Weights that tensor parallelism shards and weights that every GPU replicates are counted separately:
norms and biases of row-parallel layers are replicated, biases of column-parallel layers sharded.
"""

from dataclasses import dataclass
from typing import Final

from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Encoder

_ROTARY_POSITIONS: Final = 8192
"""Rows of the cosine and sine table in Qwen's and GLM's encoders (get_rope in qwen2_vl.py)."""

LAYER_NORMS: Final = 4
"""Vectors of a layer's two norms, each with a weight and a bias."""

RMS_NORMS: Final = 2
"""Vectors of a layer's two norms, each with a weight."""


@dataclass(frozen=True, slots=True)
class EncoderLayers:
    """The layers of an encoder, `width` elements wide.

    `attention` is the width of all query heads together, `kv` that of all KV heads.
    """

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
        """Elements of all layers' attention matrices and of their QKV biases."""
        biases = self.attention + 2 * self.kv if self.biased else 0
        matrices = 2 * self.width * (self.attention + self.kv)
        return self.layers * (matrices + biases)

    @property
    def mlp_elements(self) -> int:
        """Elements of all layers' MLP matrices, and of the biases of all but the last matrix."""
        biases = (self.mlp_matrices - 1) * self.inner if self.biased else 0
        return self.layers * (self.mlp_matrices * self.width * self.inner + biases)

    @property
    def sharded_elements(self) -> int:
        """Elements that tensor parallelism shards."""
        return self.attention_elements + self.mlp_elements

    @property
    def replicated_elements(self) -> int:
        """Elements that each GPU holds: norms and the biases of output layers."""
        output_biases = 2 if self.biased else 0
        return self.layers * (self.norms + output_biases) * self.width

    @property
    def head_dim(self) -> int:
        """Width of one head."""
        return self.attention // self.heads if self.heads else 0

    @property
    def rotary_table(self) -> int:
        """Elements of the cosine and sine table, which covers half a head."""
        return _ROTARY_POSITIONS * (self.head_dim // 2)


def read_encoder_layers(
    config: ConfigFields,
    mlp_matrices: int = 2,
    norms: int = LAYER_NORMS,
    biased: bool = True,
    layers: int | None = None,
) -> EncoderLayers:
    """Read the layers from an encoder's config. Raises CheckpointError."""
    count = config.count("depth", "num_hidden_layers", "vt_num_hidden_layers", "layers")
    width = config.count("embed_dim", "vt_hidden_size", "hidden_size", "width")
    inner = config.count("intermediate_size", "vt_intermediate_size")
    heads = config.count("num_heads", "num_attention_heads", "vt_num_attention_heads", "heads")
    head_dim = config.optional_positive("head_dim")
    attention = heads * head_dim if head_dim else width
    kv_heads = config.count("num_key_value_heads") or heads
    return EncoderLayers(
        layers=count if layers is None else layers,
        width=width,
        inner=inner or int(_read_mlp_ratio(config) * width),
        heads=heads,
        attention=attention,
        kv=attention * kv_heads // heads if heads else attention,
        mlp_matrices=mlp_matrices,
        norms=norms,
        biased=biased,
    )


def make_sharded_encoder(encoder: EncoderLayers, sharded: int, replicated: int) -> Encoder:
    """Return an encoder with sharded layers, plus the elements before and after its layers."""
    return Encoder(
        sharded_elements=encoder.sharded_elements + sharded,
        replicated_elements=encoder.replicated_elements + replicated,
        heads=encoder.heads or None,
        inner=encoder.inner or None,
    )


def make_replicated_encoder(encoder: EncoderLayers, other_elements: int) -> Encoder:
    """Return an encoder that every GPU replicates, plus the elements outside its layers."""
    return Encoder(0, encoder.sharded_elements + encoder.replicated_elements + other_elements)


def count_patch_embedding(vision: ConfigFields, width: int) -> int:
    """Count the weights of the convolution that embeds patches of pixels."""
    patch = read_side(vision, "patch_size") or 14
    channels = vision.count("in_channels", "in_chans", "num_channels") or 3
    return width * channels * patch * patch * (vision.count("temporal_patch_size") or 1)


def count_image_patches(vision: ConfigFields) -> int:
    """Count the patches of the largest image."""
    return (read_side(vision, "image_size") // (read_side(vision, "patch_size") or 14)) ** 2


def read_side(vision: ConfigFields, name: str) -> int:
    """Return the side of a square, which configs give once or twice; 0 when absent."""
    if isinstance(vision.value(name), list):
        return max(vision.integers(name), default=0)
    return vision.count(name)


def count_two_layers(inputs: int, inner: int, outputs: int) -> int:
    """Count the weights and biases of a two-layer projector."""
    return inputs * inner + inner + inner * outputs + outputs


def _read_mlp_ratio(config: ConfigFields) -> float:
    """Return the inner size of the MLP as a multiple of the width; it may be a fraction."""
    ratio = config.value("mlp_ratio")
    if ratio is None:
        return 4
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 64:
        raise config.invalid("mlp_ratio", ratio, "a number above 0, at most 64")
    return ratio
