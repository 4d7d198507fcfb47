"""The tokens that SGLang's KV cache holds.

Source: SGLang 0.5.23, sglang/srt/model_executor/pool_configurator.py and
mem_cache/kv_cache_configurator.py.
"""

from collections.abc import Sequence

from tonnage.catalog.sglang import SGLangMemory
from tonnage.fit.kv_cache.layers import PACKED_LATENT_BYTES
from tonnage.fit.kv_cache.specs import indexer_key_bytes
from tonnage.fit.sglang.attention import AttentionLayers, read_layers, row_elements
from tonnage.fit.sglang.model import NotCalculatedError, PoolSizes, Replica
from tonnage.fit.sglang.stages import stage_replicas


def size_pools(replica: Replica, pool_bytes: int, memory: SGLangMemory) -> PoolSizes:
    """The pools in `pool_bytes`: free memory x fraction less the weights.

    Raises NotCalculatedError for a model, a device or an element type that is not calculated.
    """
    options, layers = replica.options, read_layers(replica, memory)
    tensor = options.tensor_parallel_size
    page = _page_tokens(replica, layers, memory)
    if layers.latent:
        full_bytes = _latent_bytes(replica, layers, memory)
    else:
        full_bytes = row_elements(layers.full, tensor) * _element_bytes(replica, memory)
    window_bytes = row_elements(layers.windows, tensor) * _element_bytes(replica, memory)
    share = memory.window_pools.share if layers.full or layers.latent else 1.0
    per_token = full_bytes + share * window_bytes
    tokens = max(0, int(pool_bytes // per_token)) // page * page
    windows = int(tokens * share) // page * page if layers.windows else None
    return PoolSizes(per_token, page, tokens, windows, max_requests(replica, tokens, memory))


def size_pools_of_stages(
    replica: Replica, pool_bytes: Sequence[int], memory: SGLangMemory
) -> tuple[PoolSizes, ...]:
    """The pools of each pipeline stage, in its `pool_bytes`; the one with the fewest tokens holds
    for all (kv_cache_configurator.py _apply_token_constraints).

    Raises NotCalculatedError for a model, a device or an element type that is not calculated.
    """
    stages = stage_replicas(replica)
    return tuple(
        size_pools(stage, size, memory) for stage, size in zip(stages, pool_bytes, strict=True)
    )


def _element_bytes(replica: Replica, memory: SGLangMemory) -> int:
    """Bytes of an element of keys and values; without an argument those of the computation, or FP8
    if ModelOpt declares it (mem_cache/kv_cache_dtype.py)."""
    dtype = replica.options.kv_cache_dtype
    if dtype == "auto":
        stored = replica.shape.quantization
        declared = stored is not None and stored.method.startswith("modelopt")
        return 1 if declared and stored is not None and stored.kv_cache_bits == 8 else 2
    if dtype not in memory.cache_bytes:
        known = ", ".join(("auto", *memory.cache_bytes))
        raise NotCalculatedError(
            f"KV cache dtype {dtype[:64]!r} is not calculated: expected {known}"
        )
    return memory.cache_bytes[dtype]


def _latent_bytes(replica: Replica, layers: AttentionLayers, memory: SGLangMemory) -> int:
    """Bytes of a token's latents, the same on every GPU, with the keys of indexers."""
    element, arch = _element_bytes(replica, memory), replica.device.arch
    if layers.sparse and replica.options.kv_cache_dtype == "auto" and arch in memory.sparse_fp8:
        element = 1
    total = 0
    for layer in layers.latent:
        packed = layer.sparse and element == 1 and arch in memory.sparse_packed
        width = layer.kv_lora_rank + layer.qk_rope_head_dim
        total += PACKED_LATENT_BYTES if packed else width * element
    indexer = next((layer.indexer for layer in layers.latent if layer.indexer is not None), None)
    if indexer is not None:
        total += indexer_key_bytes(indexer.head_dim) * len(layers.latent)
    return total


def _page_tokens(replica: Replica, layers: AttentionLayers, memory: SGLangMemory) -> int:
    pages, arch = memory.page_tokens, replica.device.arch
    if layers.sparse:
        return pages.sparse.get(arch, 1)
    return (pages.latent if layers.latent else pages.attention).get(arch, 1)


def max_requests(replica: Replica, tokens: int, memory: SGLangMemory) -> int:
    """Requests that run at a time with a pool of so many tokens.

    Source: KVCacheConfigurator.resolve_max_num_reqs.
    """
    requests, options = memory.requests, replica.options
    estimated = int(tokens / options.context_length * requests.per_context)
    default = max(min(estimated, requests.most), requests.least)
    return min(options.max_running_requests or default, tokens // 2)
