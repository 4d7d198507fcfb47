"""The facts of a decoder-only model that memory, legality and speed depend on.

A model is a stack of decoder layers. Layers that are alike are described once (`layer_kinds`), and
`layer_order` says which kind each layer is. A layer mixes tokens (attention in one of its forms,
or a recurrent state) and then feeds each token forward (one MLP, or experts, or both).
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import TypeVar


class DType(StrEnum):
    """Element type of unquantised tensors; names as torch and config.json spell them."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"

    @property
    def size_bytes(self) -> int:
        """Bytes of one element."""
        return 4 if self is DType.FLOAT32 else 2


@dataclass(frozen=True, slots=True)
class Quantization:
    """How the linear layers' weights are stored.

    `method` is vLLM's name (`fp8`, `compressed-tensors`, `awq`, `gptq`, `mxfp4`, `modelopt`, ...),
    `weight_bits` the bits of one weight without its scales, `block` the (rows, columns) that share
    one scale (DeepSeek-style FP8: (128, 128)), `group_size` the weights along the input that share
    one scale (None: one a channel or tensor), `scale_bits` the bits of such a scale and zero point.
    `kv_cache_bits` is the element size of the KV cache that the checkpoint declares.
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


@dataclass(frozen=True, slots=True)
class Attention:
    """Multi-head attention whose query heads share `kv_heads` keys and values (grouped-query).

    With a `window` it attends to so many tokens back; `chunked`: to the chunk of that length that
    the token is in. `gated` doubles the query projection. Without `stores_kv` it reads the cache
    of an earlier layer and projects no keys and values of its own. `qkv_bias` and `output_bias`
    tell which projections add a bias, `norm_elements` the weights of its query and key norms on
    one GPU, whatever the split.
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


@dataclass(frozen=True, slots=True)
class SparseIndexer:
    """What picks the tokens that sparse latent attention looks at (DeepSeek-V3.2, GLM-5)."""

    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek, Kimi, GLM-5): one latent a token, no KV heads.

    `indexer` is that of a layer with one of its own; `sparse` layers without use another's.
    """

    heads: int
    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None
    indexer: SparseIndexer | None = None
    sparse: bool = False


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated delta net (Qwen3-Next, Qwen3.5): a state of fixed size for each sequence.

    `state_dtype` is the element type of the recurrent state, None the model's own.
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_dtype: DType | None = None


Mixer = Attention | LatentAttention | LinearAttention
"""How a layer lets tokens see one another."""


@dataclass(frozen=True, slots=True)
class Mlp:
    """One MLP for every token: `gated` ones have three matrices, the others two."""

    intermediate_size: int
    gated: bool = True
    bias: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: every token goes to `per_token` of `count` and to the shared ones.

    `shared_intermediate_size` is that of all shared experts together, 0 without any;
    `shared_gate` weighs their output. `router_bytes` is the size of a router weight.
    """

    count: int
    per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0
    shared_gate: bool = False
    gated: bool = True
    bias: bool = False
    router_bytes: int = 2


FeedForward = Mlp | Experts
"""What a layer does to each token by itself."""

Block = TypeVar("Block", bound=Mixer | FeedForward)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One kind of layer: usually one mixer and one feed-forward block, but any number of each.

    `norm_elements` are the weights of its norms, the same on every GPU. `exceptions` are the
    linear layers that are not stored as the model's `quantization` says, by name: None is 16 bits.
    """

    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_elements: int = 0
    exceptions: tuple[tuple[str, Quantization | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision or audio encoder with its projector, by what tensor parallelism does to its weights.

    `sharded_elements` are split over GPUs (kept whole with `--mm-encoder-tp-mode data`),
    `replicated_elements` always lie on each GPU; both are 16-bit. `heads` have to be divisible.
    """

    sharded_elements: int
    replicated_elements: int = 0
    heads: int | None = None

    @property
    def elements(self) -> int:
        """Weights of the whole tower."""
        return self.sharded_elements + self.replicated_elements


@dataclass(frozen=True, slots=True)
class RopeCache:
    """Cosines and sines that vLLM tabulates for one kind of rotary embedding, on every GPU."""

    positions: int
    width: int
    element_bytes: int = 2


@dataclass(frozen=True)
class ModelShape:
    """The shape of a decoder-only model, from config.json.

    `draft_layers` predict tokens ahead; they lie on disk and are loaded for speculative decoding
    only. `towers` encode images and sound.
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
    draft_layers: tuple[DecoderLayer, ...] = ()
    towers: tuple[Tower, ...] = ()
    rope_caches: tuple[RopeCache, ...] = ()
    position_embeddings: int = 0

    def __hash__(self) -> int:
        # Shapes are keys of caches on the hot path; hashing the whole tree each time would cost
        # more than the calculation that is looked up.
        return self._hash

    @cached_property
    def _hash(self) -> int:
        kinds = (self.layer_kinds, self.layer_order, self.quantization, self.draft_layers)
        return hash((self.architecture, self.hidden_size, self.vocab_size, *kinds))

    @property
    def layers(self) -> int:
        """Decoder layers, without those that predict ahead."""
        return len(self.layer_order)

    @cached_property
    def layer_counts(self) -> Mapping[DecoderLayer, int]:
        """How many layers there are of each kind."""
        counted = Counter(self.layer_order)
        return {self.layer_kinds[kind]: count for kind, count in counted.items()}

    @cached_property
    def mixer_counts(self) -> Mapping[Mixer, int]:
        """How many layers have each mixer."""
        counted: Counter[Mixer] = Counter()
        for layer, count in self.layer_counts.items():
            for mixer in layer.mixers:
                counted[mixer] += count
        return counted

    @cached_property
    def attention_heads(self) -> int:
        """Query heads of the layers that attend, the most where they differ; 0 without any."""
        return max((mixer.heads for mixer in self._attending()), default=0)

    @cached_property
    def latent_attention(self) -> LatentAttention | None:
        """The latent attention, None for a model without."""
        return next(self._mixers_of(LatentAttention), None)

    @cached_property
    def linear_attention(self) -> LinearAttention | None:
        """The linear attention, None for a model without."""
        return next(self._mixers_of(LinearAttention), None)

    @cached_property
    def experts(self) -> Experts | None:
        """The experts, None for a dense model."""
        return next(self._feed_forwards_of(Experts), None)

    @cached_property
    def intermediate_size(self) -> int:
        """Inner size of the largest MLP, of an expert where there is none."""
        dense = max((mlp.intermediate_size for mlp in self._feed_forwards_of(Mlp)), default=0)
        return dense or (self.experts.intermediate_size if self.experts else 0)

    @property
    def tower_elements(self) -> int:
        """Weights of all vision and audio towers."""
        return sum(tower.elements for tower in self.towers)

    def _attending(self) -> Iterator[Attention | LatentAttention]:
        for mixer in self.mixer_counts:
            if isinstance(mixer, Attention | LatentAttention):
                yield mixer

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
    """A model as it lies on disk: its shape and, where known, the bytes of its tensors.

    `weights_bytes` is the size of all tensors, None when only the config is known. `bytes_by_dtype`
    sums tensors by safetensors dtype (`BF16`, `F8_E4M3`, ...). `load_from` is what vLLM is told to
    load, `revision` the commit the facts were read from (None: no such thing, as for inline facts).
    """

    shape: ModelShape
    weights_bytes: int | None = None
    bytes_by_dtype: tuple[tuple[str, int], ...] = ()
    revision: str | None = None


class CheckpointError(ValueError):
    """Facts of a model that cannot be used: names the field, the value and what was expected."""


class UnsupportedArchitectureError(CheckpointError):
    """The config is readable but not of a decoder-only model that Tonnage can size."""
