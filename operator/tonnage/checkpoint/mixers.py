"""The mixers of a model: which form of attention or state each kind of layer has."""

from tonnage.catalog.families import Family
from tonnage.checkpoint.attention import AttentionReader, read_heads, read_hidden_size
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.layers import LayerKind
from tonnage.checkpoint.model import (
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

    def __init__(self, config: ConfigFields, layers: int, family: Family) -> None:
        self._config = config
        self._attention = AttentionReader(config, layers, family)
        self._indexer_types = config.names("indexer_types")

    def read(self, kind: LayerKind, index: int) -> tuple[Mixer, ...]:
        """The mixers of layer `index`."""
        if kind is LayerKind.LINEAR:
            return (_read_linear(self._config),)
        if "kv_lora_rank" in self._config:
            return (self.read_latent(index),)
        attention = self._attention.read(kind, index)
        return () if attention is None else (attention,)

    def read_latent(self, index: int) -> LatentAttention:
        """The latent attention of layer `index`."""
        config = self._config
        sparse = "index_n_heads" in config
        shares = self._indexer_types[index : index + 1] not in ((), ("full",))
        heads = read_heads(config)
        return LatentAttention(
            heads=heads,
            kv_lora_rank=config.positive("kv_lora_rank"),
            qk_rope_head_dim=config.positive("qk_rope_head_dim"),
            qk_nope_head_dim=config.positive("qk_nope_head_dim"),
            v_head_dim=config.positive("v_head_dim", default=read_hidden_size(config) // heads),
            q_lora_rank=config.optional_positive("q_lora_rank"),
            indexer=_read_indexer(config) if sparse and not shares else None,
            sparse=sparse,
        )


def as_dtype(fields: ConfigFields, field: str, name: str) -> DType:
    """The element type of that name. Raises CheckpointError naming `field`."""
    known = {"auto": "bfloat16", "float": "float32", "half": "float16"}
    short = name.removeprefix("torch.")
    short = known.get(short, short)
    if short not in set(DType):
        raise fields.wrong(field, name, " or ".join(DType))
    return DType(short)


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
        heads=config.positive("index_n_heads"),
        head_dim=config.positive("index_head_dim"),
        top_k=config.positive("index_topk", default=2048),
    )
