"""Multi-head attention as config.json describes it, for each layer by itself."""

from tonnage.catalog.families import Family
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import LayerKind, read_window
from tonnage.checkpoint.model import Attention

_QKV_BIAS = ("attention_bias", "qkv_bias", "use_qkv_bias", "add_qkv_bias", "use_bias", "bias")
_KV_HEADS = (
    "num_key_value_heads", "num_kv_heads", "n_head_kv", "num_attention_groups",
    "multi_query_group_num", "kv_n_heads",
)  # fmt: skip
_HEAD_DIM = ("head_dim", "attention_head_dim", "kv_channels")


class AttentionReader:
    """Reads the attention of one config; each layer asks for its own.

    Raises CheckpointError for fields that are missing or absurd.
    """

    def __init__(self, config: ConfigFields, layers: int, family: Family) -> None:
        self._config = config
        self._family = family
        self._heads = config.integers("num_attention_heads_per_layer")
        self._blocks = config.objects("block_configs")
        self._per_layer = config.nested("per_layer_config")  # Gemma 4, by transformers 5
        self._shared_from = layers - config.count("num_kv_shared_layers")  # Gemma 3n, Gemma 4

    def read(self, kind: LayerKind, index: int) -> Attention | None:
        """The attention of layer `index`, None where the search of Nemotron-NAS left it out."""
        config, windowed = self._of_layer(index), kind is not LayerKind.FULL
        heads, kv_heads = self._read_heads(config, windowed, index)
        if kv_heads == 0:
            return None
        head_dim = _read_head_dim(config, windowed, heads)
        value_head_dim = config.count(*_own(windowed, "v_head_dim")) or head_dim
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
            norm_elements=self._norm_elements(heads, kv_heads, head_dim),
            query_rank=config.optional_positive("share_q_dim"),  # Step-3
            head_gate=_gates_heads(config),
        )

    def _of_layer(self, index: int) -> ConfigFields:
        """The fields that hold for one layer."""
        if self._per_layer is None:
            return self._config
        own = self._per_layer.nested(str(index), f"{index:02d}")
        return self._config if own is None else self._config.overridden_by(own)

    def _read_heads(self, config: ConfigFields, windowed: bool, index: int) -> tuple[int, int]:
        """Query heads and KV heads; none of these without attention."""
        other = config.nested("attention_other_setting") if windowed else None  # Step-3.5
        config = other or config
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
        usual = self._family.output_bias
        default = qkv_bias if usual is None else usual
        return self._config.flag("attention_out_bias", "use_bias", "bias", default=default)

    def _norm_elements(self, heads: int, kv_heads: int, head_dim: int) -> int:
        """Weights of the query and key norms: one head's each, or one of the whole width each."""
        form = self._family.qk_norm
        if not self._config.flag("use_qk_norm", "qk_layernorm", default=form is not None):
            return 0
        return (heads + kv_heads) * head_dim if form == "width" else 2 * head_dim


def _read_kv_heads(config: ConfigFields, windowed: bool, heads: int) -> int:
    single = config.flag("multi_query") and not config.flag("new_decoder_architecture")
    names = _own(windowed, *_KV_HEADS)
    if not windowed and "global_head_dim" in config:  # Gemma 4
        names = ("num_global_key_value_heads", *names)
    kv_heads = config.positive(*names, default=1 if single else heads)
    if kv_heads > heads or heads % kv_heads:
        raise config.wrong(
            "num_key_value_heads", kv_heads, f"a divisor of {heads}, the attention heads"
        )
    return 1 if single else kv_heads


def _read_head_dim(config: ConfigFields, windowed: bool, heads: int) -> int:
    names = _own(windowed, *_HEAD_DIM)
    given = config.optional_positive(*(names if windowed else ("global_head_dim", *names)))
    hidden_size = read_hidden_size(config)
    if given is None and hidden_size < heads:
        raise config.wrong("hidden_size", hidden_size, f"at least {heads}, the attention heads")
    return given or hidden_size // heads


def read_heads(config: ConfigFields, windowed: bool = False) -> int:
    """Query heads of a layer, with a window or without."""
    return config.positive(*_own(windowed, "num_attention_heads", "n_head", "n_heads"))


def read_hidden_size(config: ConfigFields) -> int:
    """Width of the residual stream."""
    return config.positive("hidden_size", "n_embd", "d_model")


def _gates_heads(config: ConfigFields) -> bool:
    """Whether a gate weighs the output of each head: Step-3.5, Laguna."""
    return config.flag("use_head_wise_attn_gate") or config.value("gating") in (True, "per-head")


def _own(windowed: bool, *names: str) -> tuple[str, ...]:
    """The fields that count for a layer; MiMo-V2 says apart what layers with a window have."""
    return (*(f"swa_{name}" for name in names), *names) if windowed else names
