"""What the KV cache costs on one GPU, and how many tokens a given memory holds.

Sources: vllm/v1/kv_cache_interface.py, vllm/v1/core/kv_cache_utils.py,
vllm/config/model.py get_num_kv_heads, all of 0.32.0. The rules reproduce what vLLM prints for full,
latent and sliding-window attention to the byte.
"""

from typing import Final

from tonnage.checkpoint.model import LinearAttention, ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.tensors import Split, kv_heads_per_rank

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
    layers = shape.layers - shape.sliding_layers - shape.linear_layers
    stage = Split(pipeline=parallelism.pipeline).stage(layers)
    element = kv_element_bytes(shape, options)
    per_layer = _full_layer_bytes(shape, parallelism.tensor, element, options)
    return stage * per_layer + _indexer_bytes(shape, parallelism)


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
    if shape.sliding_window is not None:
        return _windowed_request_bytes(
            shape, shape.sliding_window, parallelism, options, batch, tokens
        )
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


def _full_layer_bytes(shape: ModelShape, tensor: int, element: int, options: EngineOptions) -> int:
    """A token in one layer that attends to the whole context."""
    latent = shape.latent_attention
    if latent is None:
        kv_heads, head_dim = shape.kv_heads, shape.head_dim
        if shape.global_head_dim is not None:
            kv_heads, head_dim = shape.global_kv_heads or kv_heads, shape.global_head_dim
        return _grouped_layer_bytes(kv_heads, head_dim, tensor, element)
    # One latent, the same on every rank: tensor parallelism adds no capacity here.
    if shape.indexer is not None and options.kv_cache_dtype.startswith("fp8"):
        return SPARSE_LATENT_FP8_BYTES
    return (latent.kv_lora_rank + latent.qk_rope_head_dim) * element


def _grouped_layer_bytes(kv_heads: int, head_dim: int, tensor: int, element: int) -> int:
    """Key and value of a token in one layer of grouped-query attention."""
    return 2 * kv_heads_per_rank(kv_heads, tensor) * head_dim * element


def _indexer_bytes(shape: ModelShape, parallelism: Parallelism) -> int:
    """Keys of the sparse indexer: FP8 with a 32-bit scale, in a cache of their own."""
    if shape.indexer is None:
        return 0
    stage = Split(pipeline=parallelism.pipeline).stage(shape.indexer.layers)
    return stage * (shape.indexer.head_dim + 4)


def _windowed_request_bytes(
    shape: ModelShape,
    window: int,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    tokens: int,
) -> int:
    """A request of a model whose layers attend to a window, all of them or some."""
    split = Split(pipeline=parallelism.pipeline)
    element = kv_element_bytes(shape, options)
    full, sliding = _padded_layers(
        split.stage(shape.layers - shape.sliding_layers), split.stage(shape.sliding_layers)
    )
    kept = min(window - 1 + batch.in_flight_tokens, tokens)
    blocks = _ceil_to(kept, BLOCK_TOKENS) + BLOCK_TOKENS
    full_layer = _full_layer_bytes(shape, parallelism.tensor, element, options)
    sliding_layer = _grouped_layer_bytes(
        shape.kv_heads, shape.head_dim, parallelism.tensor, element
    )
    return full * _ceil_to(tokens, BLOCK_TOKENS) * full_layer + sliding * blocks * sliding_layer


def _padded_layers(full: int, sliding: int) -> tuple[int, int]:
    """Layers of both kinds, rounded up to groups of equal size that share memory.

    Source: vllm/v1/core/kv_cache_utils.py _get_kv_cache_groups_uniform_page_size.
    """
    fewer, more = sorted((full, sliding))
    if fewer == 0:
        return full, sliding
    group = more if 2 * more < 3 * fewer else fewer
    return _ceil_to(full, group), _ceil_to(sliding, group)


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
    split = Split(tensor=parallelism.tensor, pipeline=parallelism.pipeline)
    element = kv_element_bytes(shape, options)
    per_token = _full_layer_bytes(shape, parallelism.tensor, element, options)
    state = _state_bytes(shape, linear, split)
    block = _ceil_to(-(-state // per_token), BLOCK_TOKENS)
    full = split.stage(shape.layers - shape.linear_layers)
    states = split.stage(shape.linear_layers) * STATES_PER_REQUEST
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
