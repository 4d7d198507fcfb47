"""Read the layers of MiniMax-M3, some of which have block-sparse attention.

Source: vllm/models/minimax_m3/nvidia/model.py of 0.32.0.
"""

from dataclasses import replace

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader, read_attention
from tonnage.checkpoint.config.feed_forwards import FeedForwardReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, SparseIndexer


def read_minimax_m3(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Return the reader; `sparse_attention_freq` has the layers with an indexer."""
    sparse = config.nested("sparse_attention_config")
    if sparse is None:
        raise CheckpointError("sparse_attention_config is missing: expected an object")
    indexer = SparseIndexer(
        heads=sparse.positive("sparse_num_index_heads"),
        head_dim=sparse.positive("sparse_index_dim"),
        top_k=sparse.positive("sparse_topk_blocks"),
    )
    full = read_attention(config, layers, family)
    indexed = replace(full, indexer=indexer)
    has_indexer = sparse.flags("sparse_attention_freq")
    feed_forwards = FeedForwardReader(config, layers, family)
    norm_elements = 2 * read_hidden_size(config)
    return lambda index: LayerBlocks(
        (indexed if index < len(has_indexer) and has_indexer[index] else full,),
        feed_forwards.read(index),
        norm_elements,
    )
