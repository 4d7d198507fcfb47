"""Read the mixers of a model: the attention or the state of each layer."""

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.config.attention import AttentionReader, read_heads, read_hidden_size
from tonnage.checkpoint.config.layer_types import LayerKind
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import (
    DType,
    LatentAttention,
    LinearAttention,
    Mixer,
    SparseIndexer,
)


class MixerReader:
    """Reads the mixers of each layer of one config.

    Raises CheckpointError for missing and out-of-range fields.
    """

    def __init__(self, config: ConfigFields, layers: int, family: Family) -> None:
        self._config = config
        self._attention = AttentionReader(config, layers, family)
        self._indexer_types = config.names("indexer_types")

    def read(self, kind: LayerKind, index: int) -> tuple[Mixer, ...]:
        """Return the mixers of layer `index`."""
        if kind is LayerKind.LINEAR:
            return (_read_linear(self._config),)
        if "kv_lora_rank" in self._config:
            return (self.read_latent(index),)
        attention = self._attention.read(kind, index)
        return () if attention is None else (attention,)

    def read_latent(self, index: int) -> LatentAttention:
        """Return the latent attention of layer `index`."""
        config = self._config
        sparse = "index_n_heads" in config
        shares_indexer = self._indexer_types[index : index + 1] not in ((), ("full",))
        heads = read_heads(config)
        return LatentAttention(
            heads=heads,
            kv_lora_rank=config.positive("kv_lora_rank"),
            qk_rope_head_dim=config.positive("qk_rope_head_dim"),
            qk_nope_head_dim=config.positive("qk_nope_head_dim"),
            v_head_dim=config.positive("v_head_dim", default=read_hidden_size(config) // heads),
            q_lora_rank=config.optional_positive("q_lora_rank"),
            indexer=_read_indexer(config) if sparse and not shares_indexer else None,
            sparse=sparse,
        )


def parse_dtype(fields: ConfigFields, field: str, name: str) -> DType:
    """Return the element type called `name`. Raises CheckpointError naming `field`."""
    aliases = {"auto": "bfloat16", "float": "float32", "half": "float16"}
    short_name = name.removeprefix("torch.")
    dtype = aliases.get(short_name, short_name)
    if dtype not in set(DType):
        raise fields.invalid(field, name, " or ".join(DType))
    return DType(dtype)


def _read_linear(config: ConfigFields) -> LinearAttention:
    state_dtype = config.text("mamba_ssm_dtype")
    return LinearAttention(
        key_heads=config.positive("linear_num_key_heads"),
        value_heads=config.positive("linear_num_value_heads"),
        key_head_dim=config.positive("linear_key_head_dim"),
        value_head_dim=config.positive("linear_value_head_dim"),
        conv_kernel=config.positive("linear_conv_kernel_dim"),
        state_dtype=(
            None if state_dtype is None else parse_dtype(config, "mamba_ssm_dtype", state_dtype)
        ),
    )


def _read_indexer(config: ConfigFields) -> SparseIndexer:
    return SparseIndexer(
        heads=config.positive("index_n_heads"),
        head_dim=config.positive("index_head_dim"),
        top_k=config.positive("index_topk", default=2048),
    )
