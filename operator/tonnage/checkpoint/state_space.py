"""Layers of models whose mixers are state spaces or short convolutions, alone or beside attention.

Each reader follows the names of its family's configuration class in transformers and the layers
that the model class of vLLM 0.32.0 builds from them.
"""

from collections.abc import Callable
from dataclasses import replace

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import read_hidden_size
from tonnage.checkpoint.blocks import LayerBlocks, LayerReader, read_attention
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import Mamba, Mamba2, ShortConvolution
from tonnage.checkpoint.model import Experts, FeedForward, Mlp


def read_mamba(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Mamba and Falcon-Mamba: nothing but state spaces of the first generation (mamba.py)."""
    hidden = read_hidden_size(config)
    inner = config.positive("intermediate_size", default=config.positive("expand") * hidden)
    mixer = Mamba(
        inner_size=inner,
        state_size=config.positive("state_size"),
        conv_kernel=config.positive("conv_kernel"),
        time_step_rank=config.positive("time_step_rank", default=-(-hidden // 16)),
        conv_bias=config.flag("use_conv_bias", default=True),
        projection_bias=config.flag("use_bias"),
    )
    return lambda index: LayerBlocks((mixer,), (), hidden)


def read_mamba2(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Mamba-2: nothing but state spaces of the second generation (mamba2.py)."""
    mixer = Mamba2(
        heads=config.positive("num_heads"),
        head_dim=config.positive("head_dim"),
        state_size=config.positive("state_size"),
        groups=config.positive("n_groups"),
        conv_kernel=config.positive("conv_kernel"),
        conv_bias=config.flag("use_conv_bias", default=True),
        projection_bias=config.flag("use_bias"),
    )
    hidden = read_hidden_size(config)
    return lambda index: LayerBlocks((mixer,), (), hidden)


def read_jamba(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Jamba: attention and experts at intervals of their own (jamba.py)."""
    hidden = read_hidden_size(config)
    mamba = Mamba(
        inner_size=config.positive("mamba_expand") * hidden,
        state_size=config.positive("mamba_d_state"),
        conv_kernel=config.positive("mamba_d_conv"),
        time_step_rank=_time_step_rank(config, hidden),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        projection_bias=config.flag("mamba_proj_bias"),
        normed=True,
    )
    attention = read_attention(config, layers, family)
    inner = config.positive("intermediate_size")
    count = config.positive("num_experts", default=1)
    experts = Experts(count, config.positive("num_experts_per_tok", default=1), inner)
    attends = _every(config, "attn_layer_period", "attn_layer_offset")
    chooses = _every(config, "expert_layer_period", "expert_layer_offset")

    def read(index: int) -> LayerBlocks:
        routed = count > 1 and chooses(index)
        block: FeedForward = experts if routed else Mlp(inner)
        return LayerBlocks((attention if attends(index) else mamba,), (block,), 2 * hidden)

    return read


def read_granite_hybrid(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Granite 4: a shared MLP in every layer, experts beside it or not (granitemoehybrid.py)."""
    hidden = read_hidden_size(config)
    mamba = _read_prefixed_mamba2(config, config.positive("mamba_expand") * hidden)
    attention = read_attention(config, layers, family)
    types = _layer_types(config, layers, ("layer_types", "layers_block_type"))
    shared = config.count("shared_intermediate_size")
    block: FeedForward = Mlp(shared)
    if count := config.count("num_local_experts"):
        per_token, inner = (
            config.positive("num_experts_per_tok"),
            config.positive("intermediate_size"),
        )
        block = Experts(count, per_token, inner, shared)
    return lambda index: LayerBlocks(
        (mamba if types[index] in ("mamba", "linear_attention") else attention,),
        (block,),
        2 * hidden,
    )


def read_falcon_h1(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Falcon-H1: a state space and attention side by side in every layer (falcon_h1.py)."""
    hidden = read_hidden_size(config)
    inner = config.positive(
        "mamba_d_ssm", default=config.positive("mamba_expand", default=2) * hidden
    )
    mamba = replace(_read_prefixed_mamba2(config, inner), normed=config.flag("mamba_rms_norm"))
    attention = read_attention(config, layers, family)
    block = Mlp(config.positive("intermediate_size"))
    return lambda index: LayerBlocks((mamba, attention), (block,), 2 * hidden)


def read_lfm2(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """LFM2: short convolutions, and attention with normalised heads (lfm2.py, lfm2_moe.py)."""
    hidden = read_hidden_size(config)
    convolution = ShortConvolution(
        width=config.positive("conv_dim", default=hidden),
        kernel=config.positive("conv_L_cache"),
        bias=config.flag("conv_bias"),
    )
    attention = read_attention(config, layers, family)
    attending = _lfm2_attending(config, layers)
    blocks = _lfm2_feed_forwards(config, layers)
    return lambda index: LayerBlocks(
        (attention if index in attending else convolution,), (blocks[index],), 2 * hidden
    )


def _read_prefixed_mamba2(config: ConfigFields, inner: int) -> Mamba2:
    """The state space of a config that prefixes its fields with `mamba_`."""
    heads = config.positive("mamba_n_heads")
    if inner % heads:
        raise config.wrong("mamba_n_heads", heads, f"a divisor of {inner}, the inner size")
    return Mamba2(
        heads=heads,
        head_dim=inner // heads,
        state_size=config.positive("mamba_d_state"),
        groups=config.positive("mamba_n_groups"),
        conv_kernel=config.positive("mamba_d_conv"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        projection_bias=config.flag("mamba_proj_bias"),
    )


def _time_step_rank(config: ConfigFields, hidden: int) -> int:
    """Given, or a sixteenth of the hidden size where the config says `auto`."""
    if config.value("mamba_dt_rank") in (None, "auto"):
        return -(-hidden // 16)
    return config.positive("mamba_dt_rank")


def _every(config: ConfigFields, period: str, offset: str) -> Callable[[int], bool]:
    """Whether a layer is one of each `period`, counted from `offset`."""
    every, start = config.positive(period), config.count(offset)
    return lambda index: index % every == start


def _layer_types(config: ConfigFields, layers: int, names: tuple[str, ...]) -> tuple[str, ...]:
    types = config.names(*names)
    if len(types) < layers:
        raise config.wrong(names[0], types, f"one entry for each of {layers} layers")
    return types


def _lfm2_attending(config: ConfigFields, layers: int) -> frozenset[int]:
    """Indexes of the layers with attention: listed, or found in the types of all layers."""
    if "full_attn_idxs" in config:
        return frozenset(config.integers("full_attn_idxs"))
    types = _layer_types(config, layers, ("layer_types",))
    return frozenset(i for i, kind in enumerate(types) if kind == "full_attention")


def _lfm2_feed_forwards(config: ConfigFields, layers: int) -> tuple[FeedForward, ...]:
    """An MLP in every layer, or experts after the first few."""
    count = config.count("num_experts")
    if not count:
        return (Mlp(_lfm2_inner(config)),) * layers
    dense = config.count("num_dense_layers")
    experts = Experts(
        count=count,
        per_token=config.positive("num_experts_per_tok"),
        intermediate_size=config.positive("moe_intermediate_size"),
    )
    mlp = Mlp(config.positive("intermediate_size"))
    return tuple(mlp if index < dense else experts for index in range(layers))


def _lfm2_inner(config: ConfigFields) -> int:
    """Two thirds of the given size, times a factor, rounded up, unless that is turned off."""
    given = config.positive("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", default=True):
        return given
    scaled = int(config.number("block_ffn_dim_multiplier", default=1.0) * (2 * given // 3))
    multiple = config.positive("block_multiple_of", default=256)
    return -(-scaled // multiple) * multiple
