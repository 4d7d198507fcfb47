"""Layers of MiniMax-M3: some attend to chosen blocks of tokens only.

Source: vllm/models/minimax_m3/nvidia/model.py of 0.32.0.
"""

from dataclasses import replace

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import read_hidden_size
from tonnage.checkpoint.blocks import LayerBlocks, LayerReader, read_attention
from tonnage.checkpoint.feed_forwards import FeedForwardReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, SparseIndexer


def read_minimax_m3(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """The usual blocks, and an indexer in the layers that `sparse_attention_freq` says."""
    sparse = config.nested("sparse_attention_config")
    if sparse is None:
        raise CheckpointError("sparse_attention_config is missing: expected an object")
    indexer = SparseIndexer(
        heads=sparse.positive("sparse_num_index_heads"),
        head_dim=sparse.positive("sparse_index_dim"),
        top_k=sparse.positive("sparse_topk_blocks"),
    )
    full = read_attention(config, layers, family)
    chosen = replace(full, indexer=indexer)
    frequency = sparse.switches("sparse_attention_freq")
    feed_forwards = FeedForwardReader(config, layers, family)
    norm_elements = 2 * read_hidden_size(config)
    return lambda index: LayerBlocks(
        (chosen if index < len(frequency) and frequency[index] else full,),
        feed_forwards.read(index),
        norm_elements,
    )
