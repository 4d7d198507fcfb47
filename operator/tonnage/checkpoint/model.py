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
from tonnage.checkpoint.stored_tensors import TensorTable


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
    one scale (None: one an output channel, `per_tensor` one for all), `scale_bits` the bits of such
    a scale and zero point; in a `symmetric` scheme the zero points carry nothing.
    `kv_cache_bits` is the element size of the KV cache that the checkpoint declares, `activations`
    the format (`int8`, `fp8`, `fp4`) that activations are quantised to, None where they stay in 16
    bits or nobody says.
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

    With a `window` it attends to so many tokens back; `chunked`: to the chunk of that length that
    the token is in. `gated` doubles the query projection. Without `stores_kv` it reads the cache
    of an earlier layer and projects no keys and values of its own. `qkv_bias` and `output_bias`
    tell which projections add a bias, `norm_elements` the weights of its query and key norms on
    one GPU, whatever the split. A `query_rank` makes queries of a low-rank latent that each GPU
    computes whole (Step-3), `head_gate` weighs each head's output, an `indexer` chooses the blocks
    of tokens to look at (MiniMax-M3).
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
    """What picks the `top_k` tokens, or blocks of them, that sparse attention looks at.

    Its cache has one key for `pool` tokens, made by a projection of its own where that is several.
    """

    heads: int
    head_dim: int
    top_k: int
    pool: int = 1


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek, Kimi, GLM-5): one latent a token, no KV heads.

    `indexer` is that of a layer with one of its own; `sparse` layers without use another's.
    The output of each head is multiplied with a gate of `gate_width`, 0 without one.
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
    """Gated delta net (Qwen3-Next, Qwen3.5): a state of fixed size for each sequence.

    `state_dtype` is the element type of the recurrent state, None the model's own.
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
"""What keeps a state of fixed size for each sequence, whatever its length."""

Attending = Attention | LatentAttention | CompressedAttention
"""What looks back at earlier tokens, whose cache grows with them."""

Mixer = Attending | StateMixer
"""How a layer lets tokens see one another."""


@dataclass(frozen=True, slots=True)
class Mlp:
    """One MLP for every token: `gated` ones have three matrices, the others two.

    `whole` ones lie on every GPU, whatever the tensor parallelism.
    """

    intermediate_size: int
    gated: bool = True
    bias: bool = False
    whole: bool = False


@dataclass(frozen=True, slots=True)
class Experts:
    """A mixture of experts: every token goes to `per_token` of `count` and to the shared ones.

    `shared_intermediate_size` is that of all shared experts together, 0 without any;
    `shared_gate` weighs their output. `router_bytes` is the size of a router weight, with
    `router_bias` it corrects each expert's score by a 32-bit number.
    `idle_count` further choices of the router have no weights. The experts work in a space of
    `latent_size` where there is one, reached and left by projections that each GPU holds whole.
    A GPU's part of an expert is at least `narrowest_shard` wide. `silu` ones activate by SiLU,
    or the square of ReLU where not `gated`, which more kernels know than other functions.
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
"""What a layer does to each token by itself."""

Block = TypeVar("Block", bound=Mixer | FeedForward)


@dataclass(frozen=True, slots=True)
class DecoderLayer:
    """One kind of layer: usually one mixer and one feed-forward block, but any number of each.

    `norm_elements` are the weights of its norms, `float32_elements` further 32-bit numbers (what
    mixes residual streams, tables of experts), both the same on every GPU. `exceptions` are the
    linear layers that are not stored as the model's `quantization` says, by name: None is 16 bits.
    """

    mixers: tuple[Mixer, ...]
    feed_forwards: tuple[FeedForward, ...]
    norm_elements: int = 0
    float32_elements: int = 0
    exceptions: tuple[tuple[str, Quantization | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Tower:
    """A vision or audio encoder with its projector, by what tensor parallelism does to its weights.

    `sharded_elements` are split over GPUs (kept whole with `--mm-encoder-tp-mode data`) and lie as
    `stored` says, `replicated_elements` always lie on each GPU, in 16 bits. `heads` and the
    `inner` size of the layers' MLPs have to be divisible. `deepstack_levels` of its layers feed
    layers of the language model directly. `estimated` ones are of a family that is not known.
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

    `max_position_embeddings` are the tokens of the longest request, scaling included;
    `default_context` is what vLLM takes without being told, None where the config says nothing of
    either. Releases that multiply the original length with the factor of YaRN take
    `multiplied_context` for both, None without YaRN.
    `quantization` is how linear layers are stored unless they are exceptions, `lm_head` how the
    output head is (None: 16 bits).
    `draft_layers` predict tokens ahead; they lie on disk and are loaded for speculative decoding
    only. `towers` encode images and sound. `stream_projections` are square matrices between the
    embeddings and several hidden states, `residual_streams` how many of those layers pass on.
    `estimated` says why the shape is a conservative guess, None for a model class that is known.
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
    towers: tuple[Tower, ...] = ()
    rope_caches: tuple[RopeCache, ...] = ()
    position_embeddings: int = 0
    stream_projections: int = 0
    residual_streams: int = 1
    default_context: int | None = None
    multiplied_context: int | None = None
    estimated: str | None = None

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
    """A model as it lies on disk: its shape and, where known, the bytes of its tensors.

    `weights_bytes` is the size of all tensors, None when only the config is known. `bytes_by_dtype`
    sums tensors by safetensors dtype (`BF16`, `F8_E4M3`, ...). `load_from` is what vLLM is told to
    load, `revision` the commit the facts were read from (None: no such thing, as for inline facts).
    `tensors` are those in the headers of the files, None where these were not read.
    """

    shape: ModelShape
    weights_bytes: int | None = None
    bytes_by_dtype: tuple[tuple[str, int], ...] = ()
    revision: str | None = None
    tensors: TensorTable | None = None


class CheckpointError(ValueError):
    """Facts of a model that cannot be used: names the field, the value and what was expected."""


class UnsupportedArchitectureError(CheckpointError):
    """The config is readable but not of a decoder-only model that Tonnage can size."""
