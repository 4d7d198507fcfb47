"""The caches of a model's layers on one rank.

Source: vLLM 0.32.0, get_kv_cache_spec of the layers named in each function.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from tonnage.checkpoint.mixer_kinds import CompressedAttention, Mamba2
from tonnage.checkpoint.model import (
    Attending,
    Attention,
    LatentAttention,
    Mixer,
    ModelShape,
    StateMixer,
)
from tonnage.fit.kv_cache.compressed import compressed_caches
from tonnage.fit.kv_cache.settings import CacheSettings, LatentStorage
from tonnage.fit.kv_cache.specs import CacheKind, LayerCache, PlacedCache, indexer_key_bytes
from tonnage.fit.kv_cache.states import StateTensor, mixer_states
from tonnage.fit.weights.attention import kv_heads_per_rank

PACKED_LATENT_BYTES: Final = 656
"""A token of sparse latent attention in fp8_ds_mla: 512 in FP8 with 4 scales, 64 in 16 bits
(vllm/model_executor/layers/attention/mla_attention.py)."""

PADDED_HEAD_DIM: Final = 256
"""Head size that releases without a latent cache pad keys and values to (vllm/config.py of 0.6.6,
ModelConfig.get_head_size)."""

LATENT_HYBRID_BLOCK: Final = 128
"""Blocks have a multiple of this many tokens in models with both latent attention and states
(vllm/platforms/interface.py _align_hybrid_block_size)."""


def place_caches(shape: ModelShape, settings: CacheSettings) -> tuple[PlacedCache, ...]:
    """The caches of all layers in the order of the layers, MTP layers last.

    Raises ValueError for an unknown cache dtype.
    """
    layers = [shape.layer_kinds[kind] for kind in shape.layer_order]
    if settings.speculative_tokens:
        layers.extend(shape.draft_layers)
    mixers = dict.fromkeys(mixer for layer in layers for mixer in layer.mixers)
    caches = _caches_by_mixer(mixers, settings)
    return tuple(
        PlacedCache(index, cache)
        for index, layer in enumerate(layers)
        for mixer in layer.mixers
        for cache in caches[mixer]
    )


def _caches_by_mixer(
    mixers: Iterable[Mixer], settings: CacheSettings
) -> Mapping[Mixer, tuple[LayerCache, ...]]:
    """The caches of a layer with each mixer.

    In a model with attention, an attention block has enough tokens to be no smaller than a state,
    and a state's page is padded to it (_align_hybrid_block_size).
    """
    attending = [mixer for mixer in mixers if isinstance(mixer, Attending)]
    states = [mixer for mixer in mixers if not isinstance(mixer, Attending)]
    block = max((_block_tokens(mixer, settings) for mixer in attending), default=1)
    page_bytes = max((_state_bytes(mixer, settings) for mixer in states), default=0)
    token = next(
        (cache for mixer in attending for cache in _attention_caches(mixer, 1, settings)), None
    )
    if token is not None and page_bytes:
        block = _hybrid_block(token, block, page_bytes)
        page_bytes = block * token.page_bytes
    caches: dict[Mixer, tuple[LayerCache, ...]] = {}
    for mixer in attending:
        caches[mixer] = tuple(_attention_caches(mixer, block, settings))
    for state in states:
        caches[state] = (_state_cache(state, block, page_bytes, settings),)
    return caches


def _block_tokens(mixer: Attending, settings: CacheSettings) -> int:
    """Tokens of a block: --block-size, else the preference of the layer's attention backend."""
    if settings.block_size is not None:
        return settings.block_size
    if isinstance(mixer, Attention):
        return settings.blocks.attention if mixer.indexer is None else settings.blocks.block_sparse
    if isinstance(mixer, CompressedAttention):
        return settings.blocks.compressed
    if settings.latents is not LatentStorage.LATENT:
        return settings.blocks.attention
    if mixer.sparse:
        return settings.blocks.sparse_latent
    quantized = settings.element(settings.latent_dtype).bits < 16
    return settings.blocks.quantized_latent if quantized else settings.blocks.latent


def _hybrid_block(token: LayerCache, block: int, state_bytes: int) -> int:
    """The fewest tokens whose page holds a state, in multiples that the backend supports."""
    multiple = max(block, LATENT_HYBRID_BLOCK if token.latent else 1)
    return -(-state_bytes // (multiple * token.page_bytes)) * multiple


def _attention_caches(
    mixer: Attending, block: int, settings: CacheSettings
) -> Iterator[LayerCache]:
    match mixer:
        case Attention():
            if mixer.stores_kv:
                yield _attention_cache(mixer, block, settings)
            if mixer.indexer is not None:
                yield _keys_cache(mixer.indexer.head_dim * 2, block)
        case LatentAttention() if settings.latents is LatentStorage.LATENT:
            yield _latent_cache(mixer, block, settings)
            if mixer.indexer is not None:
                yield _keys_cache(indexer_key_bytes(mixer.indexer.head_dim), block)
        case LatentAttention():
            yield _expanded_cache(mixer, block, settings)
        case CompressedAttention():
            yield from compressed_caches(mixer, block)


def _attention_cache(mixer: Attention, block: int, settings: CacheSettings) -> LayerCache:
    """Keys and values of a rank's heads (attention.py, chunked_local_attention.py)."""
    element = settings.element(settings.attention_dtype)
    heads = kv_heads_per_rank(mixer.kv_heads, settings.sharding.tensor)
    row = element.row_bytes(mixer.head_dim) + element.row_bytes(mixer.value_head_dim)
    page, layout = block * heads * row, (heads, mixer.head_dim, mixer.value_head_dim)
    if mixer.window is None:
        return LayerCache(CacheKind.FULL, block, page, layout)
    if mixer.chunked:
        return LayerCache(CacheKind.CHUNK, block, page, layout, reach=mixer.window)
    return LayerCache(
        CacheKind.WINDOW, block, page, layout, reach=mixer.window + settings.lookahead_tokens
    )


def _latent_cache(mixer: LatentAttention, block: int, settings: CacheSettings) -> LayerCache:
    """One latent, the same on every rank (mla_attention.py).

    A latent with scales has a pair of them, like keys and values.
    """
    width = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    if mixer.sparse and settings.latent_dtype in settings.blocks.packs_sparse:
        row = PACKED_LATENT_BYTES
    else:
        element = settings.element(settings.latent_dtype)
        row = element.row_bytes(width) + element.scale_bytes
    row = -(-row // settings.row_multiple) * settings.row_multiple
    return LayerCache(CacheKind.FULL, block, block * row, layout=(width,), latent=True)


def _keys_cache(row_bytes: int, block: int) -> LayerCache:
    """The keys that an indexer selects tokens by, the same on every rank.

    They are in FP8 with latents (models/deepseek_v2.py DeepseekV32IndexerCache), in 16 bits with
    keys and values (models/minimax_m3/common/indexer.py).
    """
    return LayerCache(CacheKind.FULL, block, block * row_bytes, layout=(row_bytes,), latent=True)


def _expanded_cache(mixer: LatentAttention, block: int, settings: CacheSettings) -> LayerCache:
    """Keys and values of every head, both with the size of a key (models/minicpm3.py)."""
    element = settings.element(settings.latent_dtype)
    heads = settings.sharding.shard(mixer.heads)
    head_dim = mixer.qk_nope_head_dim + mixer.qk_rope_head_dim
    if settings.latents is LatentStorage.PADDED_HEADS:
        head_dim = PADDED_HEAD_DIM
    row = 2 * heads * element.row_bytes(head_dim)
    return LayerCache(CacheKind.FULL, block, block * row, layout=(heads, head_dim))


def _state_tensors(mixer: StateMixer, settings: CacheSettings) -> tuple[StateTensor, ...]:
    return mixer_states(mixer, settings.sharding, settings.model_bytes, settings.speculative_tokens)


def _state_bytes(mixer: StateMixer, settings: CacheSettings) -> int:
    return sum(tensor.size_bytes for tensor in _state_tensors(mixer, settings))


def _state_cache(
    mixer: StateMixer, block: int, page_bytes: int, settings: CacheSettings
) -> LayerCache:
    """A state, one more for each speculative token, and one more if prefixes are kept.

    Source: MambaSpec.max_memory_usage_bytes; Mamba-2 also keeps a checkpoint of its prefill.
    """
    states = 1 + settings.speculative_tokens
    if settings.keeps_prefixes:
        checkpoints = settings.rules.mamba2_checkpoints if isinstance(mixer, Mamba2) else 0
        states += 1 + checkpoints
    layout = tuple(tensor.elements for tensor in _state_tensors(mixer, settings))
    return LayerCache(CacheKind.STATE, block, page_bytes, layout=layout, states=states)
