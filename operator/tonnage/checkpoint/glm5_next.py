"""Layers of GLM-5.3: delta attention, sparse latent attention without positions, several streams.

Source: vllm/models/glm5next/common/model.py, kda.py and attention.py of 0.32.0; where a config is
silent, the defaults of transformers' Glm5NextTextConfig.
"""

from typing import Final

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import read_heads, read_hidden_size
from tonnage.checkpoint.blocks import LayerBlocks, LayerReader
from tonnage.checkpoint.deepseek_v4 import hyper_connection_elements
from tonnage.checkpoint.feed_forwards import FeedForwardReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import DeltaAttention
from tonnage.checkpoint.model import LatentAttention, SparseIndexer

_ATTENDING_PERIOD: Final = 4
"""Every so many layers one attends, unless `layer_types` says otherwise."""

_DENSE_LAYERS: Final = 3
"""First layers without experts, unless `mlp_layer_types` says otherwise."""

_IN_16_BITS: Final = tuple(
    (f"self_attn.{linear}", None)
    for linear in (
        "q_proj", "f_b_proj", "g_a_proj", "g_b_proj", "o_proj", "q_a_proj", "q_b_proj",
        "kv_a_proj_with_mqa", "kv_b_proj",
    )
)  # fmt: skip
"""Attention is never quantised, whatever the checkpoint says; its indexer may be."""


def read_glm5_next(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Each layer as `layer_types` and `mlp_layer_types` say."""
    types = config.names("layer_types")
    attending = frozenset(
        index
        for index in range(layers)
        if (types[index] != "linear_attention" if index < len(types) else _attends(index))
    )
    delta, latent = _read_delta(config), _read_latent(config)
    if "mlp_layer_types" not in config:
        first = ConfigFields({"first_k_dense_replace": _DENSE_LAYERS})
        config = config.overridden_by(first)
    feed_forwards = FeedForwardReader(config, layers, family)
    hidden, streams = read_hidden_size(config), config.positive("hc_mult", default=1)
    mixing = hyper_connection_elements(hidden, streams)
    return lambda index: LayerBlocks(
        mixers=(latent if index in attending else delta,),
        feed_forwards=feed_forwards.read(index),
        norm_elements=2 * hidden,
        float32_elements=mixing,
        exceptions=_IN_16_BITS,
    )


def _attends(index: int) -> bool:
    return (index + 1) % _ATTENDING_PERIOD == 0


def _read_delta(config: ConfigFields) -> DeltaAttention:
    linear = config.nested("linear_attn_config") or ConfigFields({})
    head_dim = linear.positive("head_dim", default=config.positive("linear_head_dim", default=128))
    heads = config.positive("linear_num_heads", default=64)
    kernel = config.positive("linear_conv_kernel_dim", default=4)
    return DeltaAttention(
        heads=linear.positive("num_heads", default=heads),
        head_dim=head_dim,
        conv_kernel=linear.positive("short_conv_kernel_size", default=kernel),
        gate_rank=head_dim,
        decay_rank=head_dim,
    )


def _read_latent(config: ConfigFields) -> LatentAttention:
    """Attention without positions: its rotated part is usually nothing."""
    indexer = SparseIndexer(
        heads=config.positive("index_n_heads"),
        head_dim=config.positive("index_head_dim"),
        top_k=config.positive("index_topk"),
        pool=config.positive("index_kpool", default=16),
    )
    return LatentAttention(
        heads=read_heads(config),
        kv_lora_rank=config.positive("kv_lora_rank"),
        qk_rope_head_dim=config.count("qk_rope_head_dim"),
        qk_nope_head_dim=config.positive("qk_nope_head_dim"),
        v_head_dim=config.positive("v_head_dim"),
        q_lora_rank=config.positive("q_lora_rank"),
        indexer=indexer,
        sparse=True,
    )
