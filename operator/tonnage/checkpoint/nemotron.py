"""Layers of Nemotron-H: each is one block, a state space, attention, an MLP or experts.

Source: vllm/model_executor/models/nemotron_h.py of 0.32.0. Configs spell the order as a pattern of
signs (`hybrid_override_pattern`) or as a list of names (`layers_block_type`); those found by
architecture search describe each layer by itself (`block_configs`).
"""

from typing import Final

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import read_hidden_size
from tonnage.checkpoint.blocks import LayerBlocks, LayerReader, read_attention
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.mixer_kinds import Mamba2
from tonnage.checkpoint.mixers import as_dtype
from tonnage.checkpoint.model import Experts, Mlp

_SIGNS: Final = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
_SYNONYMS: Final = {"linear_attention": "mamba", "full_attention": "attention"}


def read_nemotron_h(config: ConfigFields, layers: int, family: Family) -> LayerReader:
    """Each layer as its kind says, with its own sizes where the config gives them."""
    kinds = _read_kinds(config, layers)
    own, shared = config.objects("block_configs"), config.without("block_configs")
    hidden = read_hidden_size(config)

    def read(index: int) -> LayerBlocks:
        fields = shared.overridden_by(own[index]) if index < len(own) else shared
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
        names = tuple(_SIGNS.get(sign, sign) for sign in pattern)
        field: str = "hybrid_override_pattern"
    else:
        field = "layers_block_type"
        given = config.names(field)
        names = tuple(_SYNONYMS.get(name, name) for name in given)
    if len(names) < layers or set(names) - set(_SIGNS.values()):
        expected = f"{layers} of {', '.join(f'{sign} ({name})' for sign, name in _SIGNS.items())}"
        raise config.wrong(field, config.value(field), expected)
    return names


def _read_mamba2(config: ConfigFields) -> Mamba2:
    """The recurrent state is 32-bit unless the config says otherwise (models/config.py)."""
    state = config.text("mamba_ssm_cache_dtype") or "float32"
    return Mamba2(
        heads=config.positive("mamba_num_heads"),
        head_dim=config.positive("mamba_head_dim"),
        state_size=config.positive("ssm_state_size"),
        groups=config.positive("n_groups", "mamba_n_groups"),
        conv_kernel=config.positive("conv_kernel", "mamba_d_conv"),
        conv_bias=config.flag("use_conv_bias", "mamba_conv_bias", default=True),
        projection_bias=config.flag("use_bias"),
        state_element_bytes=as_dtype(config, "mamba_ssm_cache_dtype", state).size_bytes,
    )


def _read_mlp(config: ConfigFields, position: int) -> Mlp:
    """An MLP of two matrices; a list of sizes has one for each of them."""
    sizes = config.value("intermediate_size")
    if not isinstance(sizes, list):
        size = config.positive("intermediate_size")
    else:
        given = config.integers("intermediate_size")
        if (len(given) > 1 and position >= len(given)) or not given:
            raise config.wrong("intermediate_size", sizes, "a size for each MLP")
        size = given[position if len(given) > 1 else 0]
    return Mlp(size, gated=False, bias=config.flag("mlp_bias"))


def _read_experts(config: ConfigFields) -> Experts:
    """Experts of two matrices, in a space of their own where `moe_latent_size` is given."""
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
