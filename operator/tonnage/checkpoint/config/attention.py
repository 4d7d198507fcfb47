"""Parse the multi-head attention of each layer from config.json."""

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.layer_types import LayerKind, read_window
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import Attention

_QKV_BIAS = ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "use_bias", "bias")
_KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups",
    "multi_query_group_num", "kv_n_heads",
)  # fmt: skip
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")


class AttentionReader:
    """Reads the attention of each layer of one config.

    Raises CheckpointError for missing and out-of-range fields.
    """

    def __init__(self, config: ConfigFields, layers: int, family: Family) -> None:
        self._config = config
        self._family = family
        self._heads = config.integers("num_attention_heads_per_layer")
        self._blocks = config.objects("block_configs")
        self._per_layer = config.nested("per_layer_config")  # Gemma 4, by transformers 5
        self._shared_from = layers - config.count("num_kv_shared_layers")  # Gemma 3n, Gemma 4

    def read(self, kind: LayerKind, index: int) -> Attention | None:
        """Return the attention of layer `index`, None where Nemotron-NAS removed it."""
        config, windowed = self._layer_config(index), kind is not LayerKind.FULL
        heads, kv_heads = self._read_heads(config, windowed, index)
        if kv_heads == 0:
            return None
        head_dim = _read_head_dim(config, windowed, heads)
        value_head_dim = config.count(*_field_names(windowed, "v_head_dim")) or head_dim
        qkv_bias = config.flag(*_QKV_BIAS, default=self._family.qkv_bias)
        return Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_head_dim=value_head_dim,
            window=read_window(config) if windowed else None,
            chunked=kind is LayerKind.CHUNKED,
            gated=config.flag("attn_output_gate", default=self._family.gated_attention),
            stores_kv=index < self._shared_from,
            qkv_bias=qkv_bias,
            output_bias=self._read_output_bias(qkv_bias),
            norm_elements=self._count_norm_elements(heads, kv_heads, head_dim),
            query_rank=config.optional_positive("share_q_dim"),  # Step-3
            head_gate=_has_head_gate(config),
        )

    def _layer_config(self, index: int) -> ConfigFields:
        """Return the config with the overrides of one layer."""
        if self._per_layer is None:
            return self._config
        overrides = self._per_layer.nested(str(index), f"{index:02d}")
        return self._config if overrides is None else self._config.overridden_by(overrides)

    def _read_heads(self, config: ConfigFields, windowed: bool, index: int) -> tuple[int, int]:
        """Return the query heads and the KV heads; 0 KV heads in a layer without attention."""
        window_config = config.nested("attention_other_setting") if windowed else None  # Step-3.5
        config = window_config or config
        heads = read_heads(config, windowed)
        if self._heads:  # Laguna
            heads = self._heads[min(index, len(self._heads) - 1)]
        if index < len(self._blocks):
            block = self._blocks[index].nested("attention")
            if block is None or "n_heads_in_group" not in block:
                return heads, 0
            return heads, heads // block.positive("n_heads_in_group", limit=heads)
        return heads, _read_kv_heads(config, windowed, heads)

    def _read_output_bias(self, qkv_bias: bool) -> bool:
        family_default = self._family.output_bias
        default = qkv_bias if family_default is None else family_default
        return self._config.flag("attention_out_bias", "use_bias", "bias", default=default)

    def _count_norm_elements(self, heads: int, kv_heads: int, head_dim: int) -> int:
        """Count the weights of the query norm and the key norm, over one head or the full width."""
        norm_kind = self._family.qk_norm
        if not self._config.flag("use_qk_norm", "qk_layernorm", default=norm_kind is not None):
            return 0
        return (heads + kv_heads) * head_dim if norm_kind == "width" else 2 * head_dim


def _read_kv_heads(config: ConfigFields, windowed: bool, heads: int) -> int:
    multi_query = config.flag("multi_query") and not config.flag("new_decoder_architecture")
    names = _field_names(windowed, *_KV_HEADS)
    if not windowed and "global_head_dim" in config:  # Gemma 4
        names = ("num_global_key_value_heads", *names)
    kv_heads = config.positive(*names, default=1 if multi_query else heads)
    if kv_heads > heads or heads % kv_heads:
        raise config.invalid(
            "num_key_value_heads", kv_heads, f"a divisor of {heads}, the number of attention heads"
        )
    return 1 if multi_query else kv_heads


def _read_head_dim(config: ConfigFields, windowed: bool, heads: int) -> int:
    names = _field_names(windowed, *_HEAD_DIM)
    head_dim = config.optional_positive(*(names if windowed else ("global_head_dim", *names)))
    hidden_size = read_hidden_size(config)
    if head_dim is None and hidden_size < heads:
        raise config.invalid(
            "hidden_size", hidden_size, f"at least {heads}, the number of attention heads"
        )
    return head_dim or hidden_size // heads


def read_heads(config: ConfigFields, windowed: bool = False) -> int:
    """Return the query heads of a layer, `windowed` for one with a sliding window."""
    return config.positive(*_field_names(windowed, "num_attention_heads", "n_head", "n_heads"))


def read_hidden_size(config: ConfigFields) -> int:
    """Return the width of the residual stream."""
    return config.positive("hidden_size", "n_embd", "d_model")


def _has_head_gate(config: ConfigFields) -> bool:
    """Return whether a gate weights the output of each head (Step-3.5, Laguna)."""
    return config.flag("use_head_wise_attn_gate") or config.value("gating") in (True, "per-head")


def _field_names(windowed: bool, *names: str) -> tuple[str, ...]:
    """Return the names to try for a layer; MiMo-V2 prefixes those of windowed layers."""
    return (*(f"swa_{name}" for name in names), *names) if windowed else names
