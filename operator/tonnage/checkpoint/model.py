"""The facts of a decoder-only model that determine its memory, legality and speed.

A model is a stack of decoder layers. Equal layers are described once (`layer_kinds`), and
`layer_order` has the kind of each layer. A layer mixes tokens (attention or a recurrent state) and
then processes each token (an MLP, experts, or both).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import TypeVar

from tonnage.checkpoint.feed_forward_kinds import (
    DraftProjection,
    LayerEmbedding,
    ResidualStreams,
)
from tonnage.checkpoint.mixer_kinds import (
    CompressedAttention,
    DeltaAttention,
    LightningAttention,
    Mamba,
    Mamba2,
    ShortConvolution,
)
from tonnage.checkpoint.tensor_table import TensorTable


class DType(StrEnum):
    """Element type of unquantised tensors, by its name in torch and config.json."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def size_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.FLOAT32 else 2


@dataclass(frozen=True, slots=True)
class Quantization:
    """The storage format of linear layers' weights.

    `method` is vLLM's name (`fp8`, `compressed-tensors`, `awq`, `gptq`, `mxfp4`, `modelopt`, ...),
    `weight_bits` the bits of one weight without its scales, `block` the (rows, columns) that share
    one scale (DeepSeek-style FP8: (128, 128)), `group_size` the weights along the input that share
    one scale (None: one per output channel; with `per_tensor`: one for all), `scale_bits` the bits
    of a scale and its zero point; the zero points of a `symmetric` scheme carry no information.
    `kv_cache_bits` is the element size of the KV cache that the checkpoint declares, `activations`
    the format (`int8`, `fp8`, `fp4`) of quantised activations, None for 16 bits and for unknown.
    """

    method: str
    weight_bits: int
    block: tuple[int, int] | None = None
    group_size: int | None = None
    scale_bits: int = 32
    is_float: bool = True
    desc_act: bool = False
    experts_only: bool = False
    kv_cache_bits: int | None = None
    activations: str | None = None
    per_tensor: bool = False
    symmetric: bool = False


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head attention whose query heads share `kv_heads` keys and values (grouped-query).

    A `window` is the number of earlier tokens it attends to; if `chunked`, the length of the chunk
    that it attends to. `gated` doubles the query projection. Without `stores_kv` it reads the cache
    of an earlier layer and projects no keys and values. `qkv_bias` and `output_bias` mark
    projections with a bias; `norm_elements` counts the weights of the query and key norms, which
    each GPU replicates. With a `query_rank`, queries come from a low-rank latent that each GPU
    computes fully (Step-3). `head_gate` weights each head's output; an `indexer` chooses the blocks
    of tokens to attend to (MiniMax-M3).
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_head_dim: int
    window: int | None = None
    chunked: bool = False
    gated: bool = False
    stores_kv: bool = True
    qkv_bias: bool = False
    output_bias: bool = False
    norm_elements: int = 0
    query_rank: int | None = None
    head_gate: bool = False
    indexer: "SparseIndexer | None" = None


@dataclass(frozen=True, slots=True)
class SparseIndexer:
    """The indexer that picks the `top_k` tokens, or blocks of tokens, for sparse attention.

    Its cache has one key per `pool` tokens; above 1, a projection of its own makes the key.
    """

    heads: int
    head_dim: int
    top_k: int
    pool: int = 1


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek, Kimi, GLM-5): one latent a token, no KV heads.

    `sparse` layers without an `indexer` share that of another layer. A gate of `gate_width`
    multiplies the output of each head, 0 without a gate.
    """

    heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None
    indexer: SparseIndexer | None = None
    sparse: bool = False
    gate_width: int = 0


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta net (Qwen3-Next, Qwen3.5): a fixed-size state for each sequence.

    `state_dtype` is the element type of the recurrent state, None for the model's dtype.
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_dtype: DType | None = None


StateMixer = (
    LinearAttention | DeltaAttention | LightningAttention | Mamba | Mamba2 | ShortConvolution
)
"""Mixers that keep a fixed-size state for each sequence."""

Attending = Attention | LatentAttention | CompressedAttention
"""Mixers that attend to earlier tokens and whose cache grows with them."""

Mixer = Attending | StateMixer
"""The part of a layer that mixes tokens."""


@dataclass(frozen=True, slots=True)
class Mlp:
    """An MLP: a `gated` one has three matrices, others have two.

    Every GPU replicates a `whole` MLP, at any tensor-parallel size.
    """

    intermediate_size: int
    gated: bool = True
    bias: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: the router sends a token to `per_token` of `count` experts.

    `shared_intermediate_size` is the size of all shared experts together, 0 without any;
    `shared_gate` weights their output. `router_bytes` is the size of a router weight; with
    `router_bias`, the router has a 32-bit correction for each expert's score. `idle_count` further
    choices of the router have no weights. With a `latent_size`, experts work in a latent space
    between two projections that each GPU replicates. A GPU's shard of an expert is at least
    `narrowest_shard` wide. `silu` means SiLU, or squared ReLU if not `gated`; more kernels support
    these than other functions.
    """

    count: int
    per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bytes: int = 2
    router_bias: bool = False
    idle_count: int = 0
    latent_size: int | None = None
    narrowest_shard: int = 1
    silu: bool = True


FeedForward = Mlp | Experts | LayerEmbedding | ResidualStreams | DraftProjection
"""A block of a layer that processes each token separately."""

Block = TypeVar("Block", bound=Mixer | FeedForward)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One kind of layer: usually one mixer and one feed-forward block, but any number of each.

    `norm_elements` counts the weights of its norms, `float32_elements` other 32-bit numbers (the
    mixing of residual streams, tables of experts); every GPU replicates both. `exceptions` are the
    linear layers, by name, whose format differs from the model's `quantization`; None is 16 bits.
    """

    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_elements: int = 0
    float32_elements: int = 0
    exceptions: tuple[tuple[str, Quantization | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Encoder:
    """A vision or audio encoder with its projector; its weights are counted by sharding.

    Tensor parallelism shards `sharded_elements`, whose format is `stored`
    (`--mm-encoder-tp-mode data` replicates them). Each GPU replicates `replicated_elements` in 16
    bits. `heads` and the MLPs' `inner` size must be divisible by the tensor-parallel size.
    `deepstack_levels` of its layers feed layers of the language model directly. It is `estimated`
    if its family is unknown.
    """

    sharded_elements: int
    replicated_elements: int = 0
    heads: int | None = None
    deepstack_levels: int = 0
    stored: Quantization | None = None
    estimated: bool = False
    inner: int | None = None

    @property
    def elements(self) -> int:
        """Weights of the encoder and its projector."""
        return self.sharded_elements + self.replicated_elements


@dataclass(frozen=True, slots=True)
class RopeCache:
    """vLLM's table of cosines and sines for one kind of rotary embedding, on every GPU."""

    positions: int
    width: int
    element_bytes: int = 2


@dataclass(frozen=True)
class ModelShape:
    """The shape of a decoder-only model, from config.json.

    `max_position_embeddings` is the longest request in tokens, scaling included; `default_context`
    is vLLM's default, None if the config has neither. In releases that multiply the original length
    by YaRN's factor, `multiplied_context` replaces both, None without YaRN. `quantization` is the
    format of linear layers without an exception, `lm_head` that of the output head (None: 16 bits).
    `draft_layers` are the multi-token prediction (MTP) layers, which are on disk; vLLM loads them
    only for speculative decoding. `encoders` are the vision and audio encoders.
    `stream_projections` counts square matrices between the embeddings and the residual streams,
    `residual_streams` the streams between layers. `estimated` is the reason why the shape is a
    conservative estimate, None for a known class.
    """

    architecture: str
    model_type: str
    dtype: DType
    hidden_size: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    layer_kinds: tuple[DecoderLayer, ...]
    layer_order: tuple[int, ...] = field(repr=False)
    quantization: Quantization | None = None
    lm_head: Quantization | None = None
    draft_layers: tuple[DecoderLayer, ...] = ()
    encoders: tuple[Encoder, ...] = ()
    rope_caches: tuple[RopeCache, ...] = ()
    position_embeddings: int = 0
    stream_projections: int = 0
    residual_streams: int = 1
    default_context: int | None = None
    multiplied_context: int | None = None
    estimated: str | None = None

    def __hash__(self) -> int:
        # Shapes are keys of caches on the hot path; hashing the tree each time would cost more than
        # the cached calculations.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        kinds = (self.layer_kinds, self.layer_order, self.quantization, self.draft_layers)
        return hash((self.architecture, self.hidden_size, self.vocab_size, *kinds))

    @property
    def layers(self) -> int:
        """Number of decoder layers, without MTP layers."""
        return len(self.layer_order)

    @cached_property
    def layer_counts(self) -> Mapping[DecoderLayer, int]:
        """Number of layers of each kind."""
        counts = Counter(self.layer_order)
        return {self.layer_kinds[kind]: count for kind, count in counts.items()}

    @cached_property
    def mixer_counts(self) -> Mapping[Mixer, int]:
        """Number of layers with each mixer."""
        counts: Counter[Mixer] = Counter()
        for layer, count in self.layer_counts.items():
            for mixer in layer.mixers:
                counts[mixer] += count
        return counts

    @cached_property
    def attention_heads(self) -> int:
        """Most query heads of a layer with attention, 0 without any."""
        return max((mixer.heads for mixer in self._attending()), default=0)

    @cached_property
    def latent_attention(self) -> LatentAttention | None:
        """The latent attention, None without any."""
        return next(self._mixers_of(LatentAttention), None)

    @cached_property
    def linear_attention(self) -> LinearAttention | None:
        """The linear attention, None without any."""
        return next(self._mixers_of(LinearAttention), None)

    @cached_property
    def experts(self) -> Experts | None:
        """The experts, None for a dense model."""
        return next(self._feed_forwards_of(Experts), None)

    @cached_property
    def intermediate_size(self) -> int:
        """Inner size of the largest MLP, of an expert without MLPs."""
        size = max((mlp.intermediate_size for mlp in self._feed_forwards_of(Mlp)), default=0)
        return size or (self.experts.intermediate_size if self.experts else 0)

    def _attending(self) -> Iterator[Attending]:
        return (mixer for mixer in self.mixer_counts if isinstance(mixer, Attending))

    def _mixers_of(self, kind: type[Block]) -> Iterator[Block]:
        return (mixer for mixer in self.mixer_counts if isinstance(mixer, kind))

    def _feed_forwards_of(self, kind: type[Block]) -> Iterator[Block]:
        return (
            block
            for layer in self.layer_counts
            for block in layer.feed_forwards
            if isinstance(block, kind)
        )


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model on disk: its shape and, where known, the bytes of its tensors.

    `weights_bytes` is the size of all tensors, None if only the config is known. `bytes_by_dtype`
    sums tensors by safetensors dtype (`BF16`, `F8_E4M3`, ...). `revision` is the commit of the
    facts, None without one, as for inline facts. `tensors` come from the headers of the files, None
    if no reader read these. `kept_facts` are the facts as a text that outlives the process (see
    kept_facts.py), None where none is kept.
    """

    shape: ModelShape
    weights_bytes: int | None = None
    bytes_by_dtype: tuple[tuple[str, int], ...] = ()
    revision: str | None = None
    tensors: TensorTable | None = None
    kept_facts: str | None = field(default=None, compare=False, repr=False)

    def with_kept_facts(self, text: str | None) -> "Checkpoint":
        """The same model with this text."""
        return replace(self, kept_facts=text)


class CheckpointError(ValueError):
    """Invalid facts of a model; the message names the field, the value and the expectation."""


class UnsupportedArchitectureError(CheckpointError):
    """The config is valid, but not of a decoder-only model that Tonnage can size."""
