"""Read the layers of models with state spaces or short convolutions, with or without attention.

Each reader uses the field names of its family's configuration class in transformers and returns the
layers that the model class of vLLM 0.32.0 builds.
"""

from collections.abc import Callable
from dataclasses import replace

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader, read_attention
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import Mamba, Mamba2, ShortConvolution
from tonnage.checkpoint.model import Experts, FeedForward, Mlp


def read_mamba(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Read Mamba and Falcon-Mamba: only state spaces of the first generation (mamba.py)."""
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
    """Read Mamba-2: only state spaces of the second generation (mamba2.py)."""
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
    """Read Jamba: attention and experts at separate intervals (jamba.py)."""
    hidden = read_hidden_size(config)
    mamba = Mamba(
        inner_size=config.positive("mamba_expand") * hidden,
        state_size=config.positive("mamba_d_state"),
        conv_kernel=config.positive("mamba_d_conv"),
        time_step_rank=_read_time_step_rank(config, hidden),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        projection_bias=config.flag("mamba_proj_bias"),
        normed=True,
    )
    attention = read_attention(config, layers, family)
    inner = config.positive("intermediate_size")
    count = config.positive("num_experts", default=1)
    experts = Experts(count, config.positive("num_experts_per_tok", default=1), inner)
    has_attention = _read_interval(config, "attn_layer_period", "attn_layer_offset")
    has_experts = _read_interval(config, "expert_layer_period", "expert_layer_offset")

    def read(index: int) -> LayerBlocks:
        block: FeedForward = experts if count > 1 and has_experts(index) else Mlp(inner)
        return LayerBlocks((attention if has_attention(index) else mamba,), (block,), 2 * hidden)

    return read


def read_granite_hybrid(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Read Granite 4: a shared MLP in each layer, with or without experts (granitemoehybrid.py)."""
    hidden = read_hidden_size(config)
    mamba = _read_prefixed_mamba2(config, config.positive("mamba_expand") * hidden)
    attention = read_attention(config, layers, family)
    types = _read_layer_types(config, layers, ("layer_types", "layers_block_type"))
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
    """Read Falcon-H1: a state space and attention in parallel in every layer (falcon_h1.py)."""
    hidden = read_hidden_size(config)
    inner = config.positive(
        "mamba_d_ssm", default=config.positive("mamba_expand", default=2) * hidden
    )
    mamba = replace(_read_prefixed_mamba2(config, inner), normed=config.flag("mamba_rms_norm"))
    attention = read_attention(config, layers, family)
    block = Mlp(config.positive("intermediate_size"))
    return lambda index: LayerBlocks((mamba, attention), (block,), 2 * hidden)


def read_lfm2(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Read LFM2: short convolutions, or attention with normalised heads (lfm2.py, lfm2_moe.py)."""
    hidden = read_hidden_size(config)
    convolution = ShortConvolution(
        width=config.positive("conv_dim", default=hidden),
        kernel=config.positive("conv_L_cache"),
        bias=config.flag("conv_bias"),
    )
    attention = read_attention(config, layers, family)
    attention_layers = _read_lfm2_attention_layers(config, layers)
    blocks = _read_lfm2_feed_forwards(config, layers)
    return lambda index: LayerBlocks(
        (attention if index in attention_layers else convolution,), (blocks[index],), 2 * hidden
    )


def _read_prefixed_mamba2(config: ConfigFields, inner: int) -> Mamba2:
    """Read the state space of a config whose fields have the prefix `mamba_`."""
    heads = config.positive("mamba_n_heads")
    if inner % heads:
        raise config.invalid("mamba_n_heads", heads, f"a divisor of {inner}, the inner size")
    return Mamba2(
        heads=heads,
        head_dim=inner // heads,
        state_size=config.positive("mamba_d_state"),
        groups=config.positive("mamba_n_groups"),
        conv_kernel=config.positive("mamba_d_conv"),
        conv_bias=config.flag("mamba_conv_bias", default=True),
        projection_bias=config.flag("mamba_proj_bias"),
    )


def _read_time_step_rank(config: ConfigFields, hidden: int) -> int:
    """Return the rank; `auto` and null mean a sixteenth of the hidden size."""
    if config.value("mamba_dt_rank") in (None, "auto"):
        return -(-hidden // 16)
    return config.positive("mamba_dt_rank")


def _read_interval(
    config: ConfigFields, period_field: str, offset_field: str
) -> Callable[[int], bool]:
    """Return a predicate for one layer in each period, at an offset."""
    period, offset = config.positive(period_field), config.count(offset_field)
    return lambda index: index % period == offset


def _read_layer_types(config: ConfigFields, layers: int, names: tuple[str, ...]) -> tuple[str, ...]:
    types = config.names(*names)
    if len(types) < layers:
        raise config.invalid(names[0], types, f"one entry for each of {layers} layers")
    return types


def _read_lfm2_attention_layers(config: ConfigFields, layers: int) -> frozenset[int]:
    """Return the indexes of the layers with attention, from a list or from all layers' types."""
    if "full_attn_idxs" in config:
        return frozenset(config.integers("full_attn_idxs"))
    types = _read_layer_types(config, layers, ("layer_types",))
    return frozenset(index for index, kind in enumerate(types) if kind == "full_attention")


def _read_lfm2_feed_forwards(config: ConfigFields, layers: int) -> tuple[FeedForward, ...]:
    """Return the blocks of all layers: MLPs, or experts after the first dense layers."""
    count = config.count("num_experts")
    if not count:
        return (Mlp(_read_lfm2_inner_size(config)),) * layers
    dense_layers = config.count("num_dense_layers")
    experts = Experts(
        count=count,
        per_token=config.positive("num_experts_per_tok"),
        intermediate_size=config.positive("moe_intermediate_size"),
    )
    mlp = Mlp(config.positive("intermediate_size"))
    return tuple(mlp if index < dense_layers else experts for index in range(layers))


def _read_lfm2_inner_size(config: ConfigFields) -> int:
    """Return the MLP's size; by default, the config's times two thirds and a factor, rounded up."""
    size = config.positive("block_ff_dim", "intermediate_size")
    if not config.flag("block_auto_adjust_ff_dim", default=True):
        return size
    scaled_size = int(config.number("block_ffn_dim_multiplier", default=1.0) * (2 * size // 3))
    multiple = config.positive("block_multiple_of", default=256)
    return -(-scaled_size // multiple) * multiple
