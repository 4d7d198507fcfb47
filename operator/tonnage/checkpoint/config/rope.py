"""Read the cosine and sine tables that rotary embeddings keep on every GPU."""

from collections.abc import Iterator
from typing import Final

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.fields import MAX_COUNT, ConfigFields
from tonnage.checkpoint.mixer_kinds import CompressedAttention, LightningAttention
from tonnage.checkpoint.model import (
    Attention,
    CheckpointError,
    DecoderLayer,
    LatentAttention,
    RopeCache,
)

_YARN: Final = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn"})
"""Kinds whose table has `factor` times the original length."""

_FULL: Final = "full_attention"
_WINDOW: Final = "sliding_attention"
_FULL_WIDTH: Final = frozenset({"proportional"})
"""Kinds that tabulate the full head, including its part without rotation."""


def read_rope_caches(
    config: ConfigFields, positions: int, layers: tuple[DecoderLayer, ...], family: Family
) -> tuple[RopeCache, ...]:
    """Return one table for each kind of rotary embedding in the model; equal layers share one.

    Raises CheckpointError for out-of-range scaling. Source: vLLM 0.32.0,
    vllm/model_executor/layers/rotary_embedding/__init__.py get_rope.
    """
    if family.rotary == 0 or config.text("position_embedding_type") == "nope":  # Granite 4
        return ()
    parameters = _RopeParameters(config, family)
    tables: dict[tuple[object, ...], RopeCache] = {}
    for layer in layers:
        for key, head_dim, kind in _list_tables(layer, parameters):
            tables.setdefault((*key, head_dim), parameters.table(kind, head_dim, positions))
    return tuple(tables.values())


def _list_tables(
    layer: DecoderLayer, parameters: "_RopeParameters"
) -> Iterator[tuple[tuple[object, ...], int, str]]:
    """Yield a key that identifies the table, the width of a head, and the kind of parameters."""
    for mixer in layer.mixers:
        if isinstance(mixer, LatentAttention):
            yield ("latent",), mixer.qk_rope_head_dim, _FULL
            if mixer.indexer is not None and not parameters.indexer_shares:
                yield ("indexer",), mixer.qk_rope_head_dim, _FULL
        elif isinstance(mixer, CompressedAttention):
            yield ("compressed", mixer.compress_ratio > 1), mixer.rope_head_dim, _FULL
        elif isinstance(mixer, LightningAttention):
            yield ("lightning",), mixer.head_dim, _FULL
        elif isinstance(mixer, Attention):
            kind = _WINDOW if mixer.window is not None and not mixer.chunked else _FULL
            yield (kind if parameters.by_window else "",), mixer.head_dim, kind


class _RopeParameters:
    """The config's rotary embedding parameters, for layers with and without a window."""

    def __init__(self, config: ConfigFields, family: Family) -> None:
        self._config = config
        self._family = family
        shared = config.nested("rope_parameters", "rope_scaling") or ConfigFields({})
        full, window = shared.nested(_FULL), shared.nested(_WINDOW)
        self._by_kind = {_FULL: full or shared, _WINDOW: window or shared}
        if family.window_rope and window is None:
            self._by_kind[_WINDOW] = ConfigFields({})  # only full attention is scaled
        self.by_window = family.window_rope or (full is not None and window is not None)
        self.indexer_shares = config.flag("indexer_rope_interleave")
        factors = config.numbers("partial_rotary_factors")  # Step-3.5: one for each layer
        self._partial_factors = dict(zip(config.names("layer_types"), factors, strict=False))

    def table(self, kind: str, head_dim: int, positions: int) -> RopeCache:
        """Return the table for layers of a kind with heads of `head_dim`."""
        parameters = self._by_kind[kind]
        scaling = parameters.text("rope_type", "type") or "default"
        width = head_dim if scaling in _FULL_WIDTH else self._read_width(kind, head_dim)
        rows = self._count_positions(parameters, scaling, positions) + self._count_chunk_positions()
        if "mrope_section" in parameters:
            rows *= self._family.rope_positions
        return RopeCache(rows, width, self._family.rope_bytes)

    def _read_width(self, kind: str, head_dim: int) -> int:
        """Return the elements of a head with rotation in layers of a kind."""
        if "rotary_dim" in self._config:  # GPT-J, MiniMax
            return min(self._config.positive("rotary_dim"), head_dim)
        default = self._partial_factors.get(kind, self._family.rotary)
        names = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction")
        default = self._config.number(*names, default=default)
        factor = self._by_kind[kind].number("partial_rotary_factor", default=default)
        return int(head_dim * min(factor, 1))

    def _count_chunk_positions(self) -> int:
        """Count the positions of the four query tables of dual chunk attention."""
        chunks = self._config.nested("dual_chunk_attention_config")
        if chunks is None:
            return 0
        return 4 * max(0, chunks.positive("chunk_size") - chunks.count("local_size"))

    def _count_positions(self, parameters: ConfigFields, scaling: str, positions: int) -> int:
        """Return the positions of the table without those of dual chunk attention."""
        original = parameters.positive("original_max_position_embeddings", default=positions)
        if scaling in _YARN:
            rows = int(original * parameters.number("factor", default=1.0))
        elif scaling == "linear":
            rows = int(positions * parameters.number("factor", default=1.0))
        elif scaling in ("longrope", "su"):
            # Phi-3 has the original length in the outer config.
            field = "original_max_position_embeddings"
            rows = positions + self._config.positive(field, default=original)
        else:
            rows = positions
        if not 1 <= rows <= MAX_COUNT:
            raise CheckpointError(f"rope_scaling stretches the context to {rows} tokens")
        return rows
