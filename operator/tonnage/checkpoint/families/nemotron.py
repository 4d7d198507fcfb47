"""Read the layers of Nemotron-H: each is one block, a state space, attention, an MLP or experts.

Source: vllm/model_executor/models/nemotron_h.py of 0.32.0. Configs give the order as a string of
symbols (`hybrid_override_pattern`) or as a list of names (`layers_block_type`); configs from
architecture search describe each layer (`block_configs`).
"""

from typing import Final

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import read_hidden_size
from tonnage.checkpoint.config.blocks import LayerBlocks, LayerReader, read_attention
from tonnage.checkpoint.config.mixers import parse_dtype
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import Mamba2
from tonnage.checkpoint.model import Experts, Mlp

_SYMBOLS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_SYNONYMS: Final = {"linear_attention": "mamba", "full_attention": "attention"}


def read_nemotron_h(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Return the reader of layers by kind, with the sizes of each layer's own config if any."""
    kinds = _read_kinds(config, layers)
    block_configs, shared = config.objects("block_configs"), config.without("block_configs")
    hidden = read_hidden_size(config)

    def read(index: int) -> LayerBlocks:
        has_config = index < len(block_configs)
        fields = shared.overridden_by(block_configs[index]) if has_config else shared
        match kinds[index]:
            case "mamba":
                return LayerBlocks((_read_mamba2(fields),), (), hidden)
            case "attention":
                return LayerBlocks((read_attention(fields, layers, family),), (), hidden)
            case "moe":
                return LayerBlocks((), (_read_experts(fields),), hidden)
            case _:
                return LayerBlocks((), (_read_mlp(fields, kinds[:index].count("mlp")),), hidden)

    return read


def _read_kinds(config: ConfigFields, layers: int) -> tuple[str, ...]:
    pattern = config.text("hybrid_override_pattern")
    if pattern is not None:
        names = tuple(_SYMBOLS.get(symbol, symbol) for symbol in pattern)
        field: str = "hybrid_override_pattern"
    else:
        field = "layers_block_type"
        names = tuple(_SYNONYMS.get(name, name) for name in config.names(field))
    if len(names) < layers or set(names) - set(_SYMBOLS.values()):
        symbols = ", ".join(f"{symbol} ({name})" for symbol, name in _SYMBOLS.items())
        expected = f"{layers} of {symbols}"
        raise config.invalid(field, config.value(field), expected)
    return names


def _read_mamba2(config: ConfigFields) -> Mamba2:
    """Return the state space; its recurrent state is 32-bit by default (models/config.py)."""
    state_dtype = config.text("mamba_ssm_cache_dtype") or "float32"
    return Mamba2(
        heads=config.positive("mamba_num_heads"),
        head_dim=config.positive("mamba_head_dim"),
        state_size=config.positive("ssm_state_size"),
        groups=config.positive("n_groups", "mamba_n_groups"),
        conv_kernel=config.positive("conv_kernel", "mamba_d_conv"),
        conv_bias=config.flag("use_conv_bias", "mamba_conv_bias", default=True),
        projection_bias=config.flag("use_bias"),
        state_element_bytes=parse_dtype(config, "mamba_ssm_cache_dtype", state_dtype).size_bytes,
    )


def _read_mlp(config: ConfigFields, position: int) -> Mlp:
    """Return an MLP of two matrices; a list of sizes has one for each MLP of the model."""
    value = config.value("intermediate_size")
    if not isinstance(value, list):
        size = config.positive("intermediate_size")
    else:
        sizes = config.integers("intermediate_size")
        if (len(sizes) > 1 and position >= len(sizes)) or not sizes:
            raise config.invalid("intermediate_size", value, "a size for each MLP")
        size = sizes[position if len(sizes) > 1 else 0]
    return Mlp(size, gated=False, bias=config.flag("mlp_bias"))


def _read_experts(config: ConfigFields) -> Experts:
    """Return experts of two matrices, in a latent space if `moe_latent_size` is present."""
    shared = config.count("n_shared_experts")
    return Experts(
        count=config.positive("n_routed_experts"),
        per_token=config.positive("num_experts_per_tok"),
        intermediate_size=config.positive("moe_intermediate_size"),
        shared_intermediate_size=shared
        and shared * config.positive("moe_shared_expert_intermediate_size"),
        gated=False,
        router_bias=True,
        latent_size=config.optional_positive("moe_latent_size"),
    )
