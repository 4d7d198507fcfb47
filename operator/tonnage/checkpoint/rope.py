"""The tables of cosines and sines that rotary embeddings keep on every GPU."""

from collections.abc import Iterator
from typing import Final

from tonnage.catalog.families import Family
from tonnage.checkpoint.fields import MAX_COUNT, ConfigFields
from tonnage.checkpoint.mixer_kinds import CompressedAttention, LightningAttention
from tonnage.checkpoint.model import (
    Attention,
    CheckpointError,
    DecoderLayer,
    LatentAttention,
    RopeCache,
)

_STRETCHED: Final = frozenset({"yarn", "deepseek_yarn", "deepseek_llama_scaling", "telechat3-yarn"})
"""Kinds whose table reaches from the original length to `factor` times it."""

_FULL: Final = "full_attention"
_WINDOW: Final = "sliding_attention"
_EXACT: Final = frozenset({"proportional"})
"""Kinds that tabulate the whole head, turned or not."""


def read_rope_caches(
    config: ConfigFields, positions: int, layers: tuple[DecoderLayer, ...], family: Family
) -> tuple[RopeCache, ...]:
    """One table for each kind of rotary embedding in the model; layers alike share one.

    Raises CheckpointError for scaling that cannot be. Source: vLLM 0.32.0,
    vllm/model_executor/layers/rotary_embedding/__init__.py get_rope.
    """
    if family.rotary == 0 or config.text("position_embedding_type") == "nope":  # Granite 4
        return ()
    parameters = _Parameters(config, family)
    tables: dict[tuple[object, ...], RopeCache] = {}
    for layer in layers:
        for key, head_dim, kind in _rotated(layer, parameters):
            tables.setdefault((*key, head_dim), parameters.table(kind, head_dim, positions))
    return tuple(tables.values())


def _rotated(
    layer: DecoderLayer, parameters: "_Parameters"
) -> Iterator[tuple[tuple[object, ...], int, str]]:
    """What tells tables apart, the width of a head, and which parameters count."""
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


class _Parameters:
    """What the config says about rotary embeddings, for layers with a window and without."""

    def __init__(self, config: ConfigFields, family: Family) -> None:
        self._config = config
        self._family = family
        given = config.nested("rope_parameters", "rope_scaling")
        whole = given or ConfigFields({})
        full, window = whole.nested(_FULL), whole.nested(_WINDOW)
        self._kinds = {_FULL: full or whole, _WINDOW: window or whole}
        if family.window_rope and window is None:
            self._kinds[_WINDOW] = ConfigFields({})  # scaling is for the whole context only
        self.by_window = family.window_rope or (full is not None and window is not None)
        self.indexer_shares = config.flag("indexer_rope_interleave")
        listed = config.numbers("partial_rotary_factors")  # Step-3.5: one for each layer
        self._parts = dict(zip(config.names("layer_types"), listed, strict=False))

    def table(self, kind: str, head_dim: int, positions: int) -> RopeCache:
        """The table of layers of that kind with heads so wide."""
        parameters = self._kinds[kind]
        scaling = parameters.text("rope_type", "type") or "default"
        width = head_dim if scaling in _EXACT else self._width(kind, head_dim)
        reach = self._reach(parameters, scaling, positions) + self._chunk_positions()
        if "mrope_section" in parameters:
            reach *= self._family.rope_positions
        return RopeCache(reach, width, self._family.rope_bytes)

    def _width(self, kind: str, head_dim: int) -> int:
        """The part of a head that is turned in layers of that kind."""
        if "rotary_dim" in self._config:  # GPT-J, MiniMax
            return min(self._config.positive("rotary_dim"), head_dim)
        usual = self._parts.get(kind, self._family.rotary)
        names = ("partial_rotary_factor", "rotary_pct", "rotary_emb_fraction")
        fallback = self._config.number(*names, default=usual)
        part = self._kinds[kind].number("partial_rotary_factor", default=fallback)
        return int(head_dim * min(part, 1))

    def _chunk_positions(self) -> int:
        """Positions of the four tables that dual chunk attention has for its queries."""
        chunks = self._config.nested("dual_chunk_attention_config")
        if chunks is None:
            return 0
        return 4 * max(0, chunks.positive("chunk_size") - chunks.count("local_size"))

    def _reach(self, parameters: ConfigFields, scaling: str, positions: int) -> int:
        """Positions of the table."""
        original = parameters.positive("original_max_position_embeddings", default=positions)
        if scaling in _STRETCHED:
            reach = int(original * parameters.number("factor", default=1.0))
        elif scaling == "linear":
            reach = int(positions * parameters.number("factor", default=1.0))
        elif scaling in ("longrope", "su"):
            # Phi-3 says in the outer config what the factors were made for.
            given = self._config.positive("original_max_position_embeddings", default=original)
            reach = positions + given
        else:
            reach = positions
        if not 1 <= reach <= MAX_COUNT:
            raise CheckpointError(f"rope_scaling stretches the context to {reach} tokens")
        return reach
