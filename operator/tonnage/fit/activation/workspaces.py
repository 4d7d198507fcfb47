"""Buffers that a model's constructor allocates besides its weights; their size follows the batch.

Sources: vLLM 0.32.0, vllm/model_executor/models/qwen3_vl.py deepstack_input_embeds,
gemma3n_mm.py and gemma4_mm.py per_layer_embeddings, deepseek_v2.py topk_indices_buffer,
layers/indexer_topk.py, v1/attention/backends/mla/flashmla_sparse.py workspace_specs and
get_prefill_workspace_size.
"""

from collections.abc import Iterator
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.checkpoint.feed_forward_kinds import LayerEmbedding
from tonnage.checkpoint.mixer_kinds import CompressedAttention
from tonnage.checkpoint.model import LatentAttention, ModelShape
from tonnage.fit.batch import Batch
from tonnage.fit.model import EngineOptions, Parallelism
from tonnage.fit.weights.precision import COMPUTE_BYTES

_INDEX_BYTES: Final = 4
"""Token indices are 32-bit integers."""

_FLASH_MLA_ARCH: Final = "sm_90"
"""The architecture on which FlashMLA serves sparse attention over an FP8 cache."""

_PADDED_HEADS: Final = 64
"""Minimum number of heads of FlashMLA's prefill kernel."""

_LONG_CONTEXT: Final = 256 * 1024
_PREFILL_CONTEXTS: Final = 5
_PREFILL_LONG_CONTEXTS: Final = 2
"""Contexts of the maximum length whose cache FlashMLA expands to 16 bits at a time."""


def workspace_bytes(
    shape: ModelShape,
    parallelism: Parallelism,
    options: EngineOptions,
    batch: Batch,
    accelerator: Accelerator,
) -> int:
    """Bytes on every GPU, counted in `Model loading took`.

    Feature maps that a vision encoder feeds directly into layers of the language model, embeddings
    of single layers, and buffers of sparse latent attention for selecting and expanding tokens.
    """
    levels = sum(encoder.deepstack_levels for encoder in shape.encoders)
    features = levels * batch.max_num_batched_tokens * shape.hidden_size * COMPUTE_BYTES
    buffer_bytes = (
        features
        + _embedding_bytes(shape, batch)
        + _selection_bytes(shape, options, batch)
        + _stream_bytes(shape, options, batch)
    )
    sparse = next((mixer for mixer in _latent_mixers(shape) if mixer.sparse), None)
    fp8 = options.kv_cache_dtype.startswith("fp8")
    if sparse is None or accelerator.arch != _FLASH_MLA_ARCH or not fp8:
        return buffer_bytes
    return buffer_bytes + _expansion_bytes(sparse, parallelism, options, batch)


def _embedding_bytes(shape: ModelShape, batch: Batch) -> int:
    """Embeddings of a whole batch for every layer, which multimodal classes allocate."""
    if not shape.encoders:
        return 0
    width = sum(
        count * block.width
        for layer, count in shape.layer_counts.items()
        for block in layer.feed_forwards
        if isinstance(block, LayerEmbedding)
    )
    return width * batch.max_num_batched_tokens * COMPUTE_BYTES


def _latent_mixers(shape: ModelShape) -> Iterator[LatentAttention]:
    return (mixer for mixer in shape.mixer_counts if isinstance(mixer, LatentAttention))


def _selection_bytes(shape: ModelShape, options: EngineOptions, batch: Batch) -> int:
    """Indices of selected tokens: of a whole batch for all layers, and of each indexer."""
    rows = batch.max_num_seqs * (1 + options.speculative_tokens) + 1
    shared, per_indexer = 0, 0
    for mixer, layers in shape.mixer_counts.items():
        if isinstance(mixer, LatentAttention) and mixer.indexer is not None:
            shared = max(shared, mixer.indexer.top_k)
            per_indexer += layers * rows * (mixer.indexer.top_k + 1)
        elif isinstance(mixer, CompressedAttention):
            shared = max(shared, mixer.index_top_k)
    copies = 1 + min(1, options.speculative_tokens)
    return (shared * copies * batch.max_num_batched_tokens + per_indexer) * _INDEX_BYTES


def _stream_bytes(shape: ModelShape, options: EngineOptions, batch: Batch) -> int:
    """All residual streams of a batch, the input of MTP layers (deepseek_v4 mtp)."""
    if shape.residual_streams == 1 or options.speculative_tokens == 0:
        return 0
    width = shape.residual_streams * shape.hidden_size
    return batch.max_num_batched_tokens * width * COMPUTE_BYTES


def _expansion_bytes(
    mixer: LatentAttention, parallelism: Parallelism, options: EngineOptions, batch: Batch
) -> int:
    """Queries and outputs of a batch, unpadded and padded, and expanded latents."""
    heads = -(-mixer.heads // parallelism.tensor)
    latent = mixer.kv_lora_rank + mixer.qk_rope_head_dim
    queries = (heads + max(heads, _PADDED_HEADS)) * (latent + mixer.kv_lora_rank)
    length = options.max_model_len
    contexts = _PREFILL_CONTEXTS if length <= _LONG_CONTEXT else _PREFILL_LONG_CONTEXTS
    return (batch.max_num_batched_tokens * queries + contexts * length * latent) * COMPUTE_BYTES
