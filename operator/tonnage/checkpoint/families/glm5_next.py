"""Read the layers of GLM-5.3: delta attention, or sparse latent attention without positions.

Sources: vllm/models/glm5next/common/model.py, kda.py and attention.py of 0.32.0; the defaults are
those of transformers' Glm5NextTextConfig.
"""

from typing import Final

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_heads, read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader
from tonnage.checkpoint.config.feed_forwards import FeedForwardReader
from tonnage.checkpoint.families.deepseek_v4 import count_hyper_connection_elements
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import DeltaAttention
from tonnage.checkpoint.model import LatentAttention, SparseIndexer

_LATENT_PERIOD: Final = 4
"""By default, the last of this many layers has latent attention (`layer_types`)."""

_DENSE_LAYERS: Final = 3
"""Default number of first layers without experts (`mlp_layer_types`)."""

_IN_16_BITS: Final = tuple(
    (f"self_attn.{linear}", None)
    for linear in (
        "q_proj", "f_b_proj", "g_a_proj", "g_b_proj", "o_proj", "q_a_proj", "q_b_proj",
        "kv_a_proj_with_mqa", "kv_b_proj",
    )
)  # fmt: skip
"""Attention is never quantised, even if the checkpoint declares it; its indexer may be."""


def read_glm5_next(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Return the reader of layers by `layer_types` and `mlp_layer_types`."""
    types = config.names("layer_types")
    latent_layers = frozenset(
        index
        for index in range(layers)
        if (types[index] != "linear_attention" if index < len(types) else _is_latent(index))
    )
    delta, latent = _read_delta(config), _read_latent(config)
    if "mlp_layer_types" not in config:
        dense_layers = ConfigFields({"first_k_dense_replace": _DENSE_LAYERS})
        config = config.overridden_by(dense_layers)
    feed_forwards = FeedForwardReader(config, layers, family)
    hidden, streams = read_hidden_size(config), config.positive("hc_mult", default=1)
    mixing = count_hyper_connection_elements(hidden, streams)
    return lambda index: LayerBlocks(
        mixers=(latent if index in latent_layers else delta,),
        feed_forwards=feed_forwards.read(index),
        norm_elements=2 * hidden,
        float32_elements=mixing,
        exceptions=_IN_16_BITS,
    )


def _is_latent(index: int) -> bool:
    return (index + 1) % _LATENT_PERIOD == 0


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
    """Return attention without positions: its rotary part is usually 0 wide."""
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
