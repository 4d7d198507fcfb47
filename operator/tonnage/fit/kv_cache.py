"""What the KV cache costs on one GPU, and how many tokens a given memory holds.

Sources: vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py,
vllm/config/model.py get_num_kv_heads, all of 0.32.0. The rules reproduce what vLLM prints for full,
latent and sliding-window attention to the byte.
"""

from collections.abc import Mapping
from typing import Final

from tonnage.checkpoint.model import (
    Attention,
    LatentAttention,
    LinearAttention,
    Mixer,
    ModelShape,
)
from tonnage.fit.batch import Batch
from tonnage.fit.matrix import Split
from tonnage.fit.mixer_tensors import kv_heads_per_rank
from tonnage.fit.model import EngineOptions, Parallelism

BLOCK_TOKENS: Final = 16
"""Tokens of one block; attention backends with larger ones round a request up a little more."""

STATES_PER_REQUEST: Final = 2
"""Pages of state that a request holds in a linear-attention layer with prefix caching, which is on
by default (mamba_cache_mode align)."""

SPARSE_LATENT_FP8_BYTES: Final = 656
"""A token of sparse latent attention in fp8_ds_mla: 512 in FP8 with 4 scales, 64 in 16 bits
(vllm/model_executor/layers/attention/mla_attention.py)."""


def kv_element_bytes(shape: ModelShape, options: EngineOptions) -> int:
    """Bytes of one cached element: as asked for, else as the checkpoint declares, else 2."""
    if options.kv_cache_dtype == "auto":
        declared = shape.quantization.kv_cache_bits if shape.quantization else None
        return 1 if declared == 8 else 2
    return 1 if options.kv_cache_dtype.startswith("fp8") else 2


def kv_bytes_per_token(shape: ModelShape, parallelism: Parallelism, options: EngineOptions) -> int:
    """What one more token of context costs on one GPU; sliding-window layers are left out."""
    element = kv_element_bytes(shape, options)
    stages = parallelism.pipeline
    return sum(
        -(-count // stages) * _token_bytes(mixer, parallelism.tensor, element, options)
        for mixer, count in shape.mixer_counts.items()
        if not isinstance(mixer, Attention) or mixer.window is None
    )


def request_kv_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    tokens: int,
) -> int:
    """What one request of so many tokens holds on one GPU.

    Window layers keep the window and the tokens in flight, one block more than that; linear
    layers a state of fixed size, whose page decides how the full layers are rounded up.
    """
    if shape.linear_attention is not None:
        return _hybrid_request_bytes(shape, shape.linear_attention, parallelism, options, tokens)
    if any(isinstance(mixer, Attention) and mixer.window for mixer in shape.mixer_counts):
        return _windowed_request_bytes(shape, parallelism, options, batch, tokens)
    return _ceil_to(tokens, BLOCK_TOKENS) * kv_bytes_per_token(shape, parallelism, options)


def kv_cache_tokens(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    kv_cache_bytes: int,
) -> int:
    """Tokens that so much memory holds, in requests of `max_model_len`.

    What vLLM prints as `GPU KV cache size`: maximum concurrency times the length.
    """
    length = options.max_model_len
    return kv_cache_bytes * length // request_kv_bytes(shape, parallelism, options, batch, length)


def needed_kv_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    tokens: int,
) -> int:
    """Memory that holds so many tokens at once, in requests of `max_model_len`."""
    length = options.max_model_len
    return -(-request_kv_bytes(shape, parallelism, options, batch, length) * tokens // length)


def _token_bytes(mixer: Mixer, tensor: int, element: int, options: EngineOptions) -> int:
    """A token in one layer that keeps it."""
    match mixer:
        case Attention():
            if not mixer.stores_kv:
                return 0
            width = mixer.head_dim + mixer.value_head_dim
            return kv_heads_per_rank(mixer.kv_heads, tensor) * width * element
        case LatentAttention():
            return _latent_bytes(mixer, element, options)
        case LinearAttention():
            return 0


def _latent_bytes(mixer: LatentAttention, element: int, options: EngineOptions) -> int:
    """One latent, the same on every rank: tensor parallelism adds no capacity here.

    The keys of a sparse indexer are FP8 with a 32-bit scale, in a cache of their own.
    """
    keys = mixer.indexer.head_dim + 4 if mixer.indexer else 0
    if mixer.sparse and options.kv_cache_dtype.startswith("fp8"):
        return SPARSE_LATENT_FP8_BYTES + keys
    return (mixer.kv_lora_rank + mixer.qk_rope_head_dim) * element + keys


def _windowed_request_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    tokens: int,
) -> int:
    """A request of a model whose layers attend to a window, all of them or some."""
    element = kv_element_bytes(shape, options)
    counts: dict[Mixer, int] = {
        mixer: -(-count // parallelism.pipeline) for mixer, count in shape.mixer_counts.items()
    }
    total = 0
    for mixer, layers in _padded_layers(counts).items():
        kept = _ceil_to(tokens, BLOCK_TOKENS)
        if isinstance(mixer, Attention) and mixer.window is not None:
            window = min(mixer.window - 1 + batch.in_flight_tokens, tokens)
            kept = _ceil_to(window, BLOCK_TOKENS) + BLOCK_TOKENS
        total += layers * kept * _token_bytes(mixer, parallelism.tensor, element, options)
    return total


def _padded_layers(counts: Mapping[Mixer, int]) -> Mapping[Mixer, int]:
    """Layers by kind, rounded up to groups of equal size that share memory.

    Source: vllm/v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size.
    """
    fewest, most = min(counts.values()), max(counts.values())
    group = most if 2 * most < 3 * fewest else fewest
    return {mixer: _ceil_to(count, group) for mixer, count in counts.items()}


def _hybrid_request_bytes(
    shape: ModelShape,
    linear: LinearAttention,
    parallelism: Parallelism,
    options: EngineOptions,
    tokens: int,
) -> int:
    """A request of a linear-attention hybrid: all layers use pages that hold one state.

    The attention block is as many tokens as fill such a page (vllm/v1/core/kv_cache_utils.py,
    vllm/model_executor/models/config.py HybridAttentionMambaModelConfig).
    """
    split = Split(tensor=parallelism.tensor)
    element = kv_element_bytes(shape, options)
    full, linears, per_token = 0, 0, 1
    for mixer, count in shape.mixer_counts.items():
        stage = -(-count // parallelism.pipeline)
        if isinstance(mixer, LinearAttention):
            linears += stage
        else:
            full += stage
            per_token = _token_bytes(mixer, parallelism.tensor, element, options)
    state = _state_bytes(shape, linear, split)
    block = _ceil_to(-(-state // per_token), BLOCK_TOKENS)
    states = linears * STATES_PER_REQUEST
    return (full * -(-tokens // block) + states) * block * per_token


def _state_bytes(shape: ModelShape, linear: LinearAttention, split: Split) -> int:
    """Convolution and recurrent state of one sequence in one layer."""
    keys = split.shard(linear.key_heads) * linear.key_head_dim
    value_heads = split.shard(linear.value_heads)
    values = value_heads * linear.value_head_dim
    conv = (2 * keys + values) * (linear.conv_kernel - 1) * 2
    state_dtype = linear.state_dtype or shape.dtype
    recurrent = value_heads * linear.value_head_dim * linear.key_head_dim
    return conv + recurrent * state_dtype.size_bytes


def _ceil_to(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
