"""The facts of a decoder-only transformer that memory, legality and speed depend on."""

from dataclasses import dataclass
from enum import StrEnum


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
    `unquantized` names linear layers that keep 16 bits and in how many of the model's layers they
    do, `kv_cache_bits` the element size of the KV cache that the checkpoint declares.
    """

    method: str
    weight_bits: int
    block: tuple[int, int] | None = None
    group_size: int | None = None
    scale_bits: int = 32
    is_float: bool = True
    desc_act: bool = False
    experts_only: bool = False
    unquantized: tuple[tuple[str, int], ...] = ()
    kv_cache_bits: int | None = None


@dataclass(frozen=True, slots=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek, Kimi, GLM-5): one latent a token, no KV heads."""

    kv_lora_rank: int
    qk_rope_head_dim: int
    qk_nope_head_dim: int
    v_head_dim: int
    q_lora_rank: int | None


@dataclass(frozen=True, slots=True)
class SparseIndexer:
    """What picks the tokens that sparse latent attention looks at (DeepSeek-V3.2, GLM-5).

    `layers` of the model have one of their own, the others share it.
    """

    layers: int
    heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class LinearAttention:
    """Gated linear attention (Qwen3-Next, Qwen3.5): a state of fixed size for each sequence.

    `state_dtype` is the element type of the recurrent state, None the model's own.
    """

    key_heads: int
    value_heads: int
    key_head_dim: int
    value_head_dim: int
    conv_kernel: int
    state_dtype: DType | None = None


@dataclass(frozen=True, slots=True)
class Experts:
    """The mixture-of-experts part: `layers` of the model have it, the others are dense."""

    layers: int
    count: int
    per_token: int
    intermediate_size: int
    shared_intermediate_size: int = 0


@dataclass(frozen=True, slots=True)
class ModelShape:
    """The shape of a decoder-only transformer, from config.json.

    `sliding_layers` of the `layers` attend to at most `sliding_window` tokens; `linear_layers` keep
    a state of fixed size instead of a KV cache; the others attend to the whole context, with
    `global_kv_heads` of `global_head_dim` where these differ from the other layers' (Gemma 4).
    `attention_gate` doubles the query projection. `nextn_layers` further layers predict tokens
    ahead; they lie on disk and are loaded for speculative decoding only. `vision_parameters` counts
    the weights of a vision tower.
    """

    architecture: str
    model_type: str
    dtype: DType
    layers: int
    hidden_size: int
    intermediate_size: int
    attention_heads: int
    kv_heads: int
    head_dim: int
    vocab_size: int
    tie_word_embeddings: bool
    max_position_embeddings: int
    latent_attention: LatentAttention | None = None
    experts: Experts | None = None
    sliding_window: int | None = None
    sliding_layers: int = 0
    linear_layers: int = 0
    quantization: Quantization | None = None
    gated_mlp: bool = True
    linear_attention: LinearAttention | None = None
    indexer: SparseIndexer | None = None
    global_kv_heads: int | None = None
    global_head_dim: int | None = None
    attention_gate: bool = False
    nextn_layers: int = 0
    vision_parameters: int = 0


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
    """The config is readable but not of a decoder-only transformer that Tonnage can size."""
