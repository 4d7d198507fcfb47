"""The mixers of a model: which form of attention or state each kind of layer has."""

from tonnage.catalog.architectures import Families
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import LayerKind, read_window
from tonnage.checkpoint.model import (
    Attention,
    DType,
    LatentAttention,
    LinearAttention,
    Mixer,
    SparseIndexer,
)


class MixerReader:
    """Reads the mixers of one config; each layer asks for its own.

    Raises CheckpointError for fields that are missing or absurd.
    """

    def __init__(self, config: ConfigFields, families: Families) -> None:
        self._config = config
        self._families = families
        self._family = config.text("model_type") or ""
        self._indexer_types = config.names("indexer_types")

    def read(self, kind: LayerKind, index: int) -> tuple[Mixer, ...]:
        """The mixers of layer `index`."""
        if kind is LayerKind.LINEAR:
            return (_read_linear(self._config),)
        if "kv_lora_rank" in self._config:
            return (self._read_latent(index),)
        return (self._read_attention(kind),)

    def _read_attention(self, kind: LayerKind) -> Attention:
        config = self._config
        heads = read_heads(config)
        kv_heads, head_dim = _read_kv_heads(config, heads), _read_head_dim(config, heads)
        windowed = kind is not LayerKind.FULL
        if not windowed and "global_head_dim" in config:  # Gemma 4
            head_dim = config.positive("global_head_dim")
            kv_heads = config.positive("num_global_key_value_heads", default=kv_heads)
        return Attention(
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            value_head_dim=config.positive("v_head_dim", default=head_dim),
            window=read_window(config) if windowed else None,
            chunked=kind is LayerKind.CHUNKED,
            gated=config.flag("attn_output_gate", default=self._family in self._families.gated),
        )

    def _read_latent(self, index: int) -> LatentAttention:
        config = self._config
        sparse = "index_n_heads" in config
        shares = self._indexer_types[index : index + 1] not in ((), ("full",))
        return LatentAttention(
            heads=read_heads(config),
            kv_lora_rank=config.positive("kv_lora_rank"),
            qk_rope_head_dim=config.positive("qk_rope_head_dim"),
            qk_nope_head_dim=config.positive("qk_nope_head_dim"),
            v_head_dim=config.positive("v_head_dim"),
            q_lora_rank=config.optional_positive("q_lora_rank"),
            indexer=_read_indexer(config) if sparse and not shares else None,
            sparse=sparse,
        )


def read_heads(config: ConfigFields) -> int:
    """Query heads of one layer."""
    return config.positive("num_attention_heads", "n_head", "n_heads")


def read_hidden_size(config: ConfigFields) -> int:
    """Width of the residual stream."""
    return config.positive("hidden_size", "n_embd", "d_model")


def as_dtype(fields: ConfigFields, field: str, name: str) -> DType:
    """The element type of that name. Raises CheckpointError naming `field`."""
    known = {"auto": "bfloat16", "float": "float32", "half": "float16"}
    short = name.removeprefix("torch.")
    short = known.get(short, short)
    if short not in set(DType):
        raise fields.wrong(field, name, " or ".join(DType))
    return DType(short)


def _read_kv_heads(config: ConfigFields, heads: int) -> int:
    default = 1 if config.flag("multi_query") else heads
    kv_heads = config.positive("num_key_value_heads", "num_kv_heads", "n_head_kv", default=default)
    if kv_heads > heads or heads % kv_heads:
        raise config.wrong(
            "num_key_value_heads", kv_heads, f"a divisor of {heads}, the attention heads"
        )
    return kv_heads


def _read_head_dim(config: ConfigFields, heads: int) -> int:
    given, hidden_size = config.optional_positive("head_dim"), read_hidden_size(config)
    if given is None and hidden_size < heads:
        raise config.wrong("hidden_size", hidden_size, f"at least {heads}, the attention heads")
    return given or hidden_size // heads


def _read_linear(config: ConfigFields) -> LinearAttention:
    state = config.text("mamba_ssm_dtype")
    return LinearAttention(
        key_heads=config.positive("linear_num_key_heads"),
        value_heads=config.positive("linear_num_value_heads"),
        key_head_dim=config.positive("linear_key_head_dim"),
        value_head_dim=config.positive("linear_value_head_dim"),
        conv_kernel=config.positive("linear_conv_kernel_dim"),
        state_dtype=None if state is None else as_dtype(config, "mamba_ssm_dtype", state),
    )


def _read_indexer(config: ConfigFields) -> SparseIndexer:
    return SparseIndexer(
        heads=config.positive("index_n_heads"), head_dim=config.positive("index_head_dim")
    )
