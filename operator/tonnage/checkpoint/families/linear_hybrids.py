"""Read the layers of models with linear and latent attention.

Sources: vLLM 0.32.0, vllm/models/kimi_k3/nvidia/model.py, vllm/model_executor/models/
bailing_moe_linear.py and bailing_moe_v3.py.
"""

from dataclasses import replace
from typing import Final

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_heads, read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader
from tonnage.checkpoint.config.feed_forwards import FeedForwardReader
from tonnage.checkpoint.config.mixers import MixerReader
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import DeltaAttention, LightningAttention
from tonnage.checkpoint.model import (
    CheckpointError,
    Experts,
    FeedForward,
    LatentAttention,
    Mixer,
)

_NARROWEST_SHARD: Final = 256
"""Minimum width of an expert's shard (KimiMoE min_moe_intermediate_per_partition)."""

_ROW_MULTIPLE: Final = 16
"""On each rank, the rows of Kimi-K3's fused input projection are a multiple of this."""


def read_kimi_linear(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Read Kimi-Linear and the language model of Kimi-K3, which number layers from 1."""
    linear = config.nested("linear_attn_config")
    if linear is None:
        raise CheckpointError("linear_attn_config is missing: expected an object")
    delta, latent = _read_kimi_delta(linear), _read_kimi_latent(config, layers, family)
    linear_layers = {index - 1 for index in linear.integers("kda_layers")}
    feed_forwards = FeedForwardReader(config, layers, family)
    # Attention residuals add a norm and a projection to a scalar to both blocks.
    norms = 6 if "attn_res_block_size" in config else 2
    norm_elements = norms * read_hidden_size(config)
    return lambda index: LayerBlocks(
        (delta if index in linear_layers else latent,),
        tuple(_make_kimi_block(block, config) for block in feed_forwards.read(index)),
        norm_elements,
    )


def read_bailing_hybrid(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Read Ring and Ling since 2.5: the last layer of each group has latent attention."""
    group = config.positive("layer_group_size", default=1)
    is_v3 = "short_conv_kernel_size" in config or "no_kda_lora" in config
    linear: Mixer = _read_bailing_delta(config) if is_v3 else _read_lightning(config)
    grouped_layers = layers // group * group if is_v3 else layers
    latent = replace(
        MixerReader(config, layers, family).read_latent(0), gate_width=_read_bailing_gate(config)
    )
    feed_forwards = FeedForwardReader(config, layers, family)
    norm_elements = 2 * read_hidden_size(config)
    return lambda index: LayerBlocks(
        (linear if index < grouped_layers and (index + 1) % group else latent,),
        feed_forwards.read(index),
        norm_elements,
    )


def _read_kimi_delta(linear: ConfigFields) -> DeltaAttention:
    full_rank, head_dim = linear.flag("use_full_rank_gate"), linear.positive("head_dim")
    return DeltaAttention(
        heads=linear.positive("num_heads"),
        head_dim=head_dim,
        conv_kernel=linear.positive("short_conv_kernel_size"),
        gate_rank=None if full_rank else head_dim,
        decay_rank=head_dim,
        row_multiple=_ROW_MULTIPLE if full_rank else 1,
    )


def _read_kimi_latent(config: ConfigFields, layers: int, family: Family) -> LatentAttention:
    gated = config.flag("mla_use_output_gate")
    return replace(
        MixerReader(config, layers, family).read_latent(0),
        gate_width=config.positive("v_head_dim") if gated else 0,
    )


def _make_kimi_block(block: FeedForward, config: ConfigFields) -> FeedForward:
    if not isinstance(block, Experts):
        return block
    return replace(
        block,
        narrowest_shard=config.positive(
            "min_moe_intermediate_per_partition", default=_NARROWEST_SHARD
        ),
        latent_size=config.optional_positive("routed_expert_hidden_size"),
    )


def _read_bailing_delta(config: ConfigFields) -> DeltaAttention:
    return DeltaAttention(
        heads=read_heads(config),
        head_dim=config.positive("head_dim"),
        conv_kernel=config.positive("short_conv_kernel_size"),
    )


def _read_lightning(config: ConfigFields) -> LightningAttention:
    heads, bias = read_heads(config), config.flag("use_bias")
    return LightningAttention(
        heads=heads,
        head_dim=config.positive("head_dim", default=max(1, read_hidden_size(config) // heads)),
        norm_groups=config.positive("group_norm_size", default=1),
        qkv_bias=bias or config.flag("use_qkv_bias"),
        output_bias=bias,
        qk_norm=config.flag("use_qk_norm"),
    )


def _read_bailing_gate(config: ConfigFields) -> int:
    """Return the width of the gate on each head's output."""
    match config.text("gated_attention_proj_granularity_type"):
        case "head_wise":
            return 1
        case "element_wise":
            return config.positive("v_head_dim")
        case _:
            return 0
