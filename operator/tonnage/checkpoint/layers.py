"""Which layer attends to what: the whole context, a window of it, or a state of fixed size."""

from enum import StrEnum
from typing import Final

from tonnage.catalog.families import Family
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, UnsupportedArchitectureError


class LayerKind(StrEnum):
    """What a layer mixes tokens with."""

    FULL = "full"
    SLIDING = "sliding"
    CHUNKED = "chunked"
    LINEAR = "linear"


_KINDS: Final = {
    "full_attention": LayerKind.FULL,
    "attention": LayerKind.FULL,
    "global": LayerKind.FULL,
    "indexed_attention": LayerKind.FULL,
    "deepseek_sparse_attention": LayerKind.FULL,  # indexed_attention before transformers 5.12
    "sliding_attention": LayerKind.SLIDING,
    "chunked_attention": LayerKind.CHUNKED,
    "linear_attention": LayerKind.LINEAR,
}
"""Entries of `layer_types` as transformers writes them."""


_WINDOW: Final = "sliding_window"


def read_window(config: ConfigFields) -> int | None:
    """Tokens that a sliding layer attends to, or the length of a chunk; None without either."""
    names = (_WINDOW, "sliding_window_size", "attention_chunk_size")
    return config.count(*names) or None


def read_layer_kinds(config: ConfigFields, layers: int, family: Family) -> tuple[LayerKind, ...]:
    """The kind of each of `layers` layers, by whichever of the families' rules applies.

    Raises CheckpointError when the lists do not describe `layers` layers, and
    UnsupportedArchitectureError for kinds whose memory is not known.
    """
    types = config.names("layer_types")
    if types:
        return _listed(config, types, layers)
    windowed = config.switches("hybrid_layer_pattern")  # MiMo-V2
    if len(windowed) >= layers:
        return tuple(LayerKind.SLIDING if has else LayerKind.FULL for has in windowed[:layers])
    interval = config.optional_positive("full_attention_interval")
    if interval is not None:
        return _each_nth_is_full(layers, interval, LayerKind.LINEAR)
    if read_window(config) is None:
        return (LayerKind.FULL,) * layers
    return _windowed(config, layers, family)


def _listed(config: ConfigFields, types: tuple[str, ...], layers: int) -> tuple[LayerKind, ...]:
    if len(types) < layers:
        raise config.wrong("layer_types", types, f"one entry for each of {layers} layers")
    unknown = sorted(set(types[:layers]) - set(_KINDS))
    if unknown:
        raise UnsupportedArchitectureError(
            f"layer_types has {unknown[0][:64]!r}: expected {', '.join(_KINDS)}"
        )
    kinds = tuple(_KINDS[kind] for kind in types[:layers])
    if read_window(config) is None and {LayerKind.SLIDING, LayerKind.CHUNKED} & set(kinds):
        raise CheckpointError("sliding_window is missing: layer_types has layers that attend to it")
    return kinds


def _each_nth_is_full(layers: int, period: int, others: LayerKind) -> tuple[LayerKind, ...]:
    return tuple(others if (index + 1) % period else LayerKind.FULL for index in range(layers))


def _windowed(config: ConfigFields, layers: int, family: Family) -> tuple[LayerKind, ...]:
    """Layers of a model with a window whose config does not list them.

    Without a pattern the window is that of every layer (vLLM 0.32.0, engine/arg_utils.py
    create_engine_config).
    """
    if "use_sliding_window" in config:
        if not config.flag("use_sliding_window"):
            return (LayerKind.FULL,) * layers
        full = min(layers, config.count("max_window_layers"))
        return (LayerKind.FULL,) * full + (LayerKind.SLIDING,) * (layers - full)
    if family.chunk_every is not None:
        return _each_nth_is_full(layers, family.chunk_every, LayerKind.CHUNKED)
    period = _pattern_period(config, family.window_every)
    if period is not None:
        return _each_nth_is_full(layers, period, LayerKind.SLIDING)
    return (LayerKind.SLIDING if config.count(_WINDOW) else LayerKind.FULL,) * layers


def _pattern_period(config: ConfigFields, default: int | None) -> int | None:
    """Every how many layers one attends to the whole context; `"LLLG"` (Exaone) spells it out."""
    pattern = config.value("sliding_window_pattern")
    if isinstance(pattern, str):
        if not pattern or set(pattern) != {"L", "G"} or pattern.count("G") != 1:
            raise config.wrong("sliding_window_pattern", pattern, "a pattern such as LLLG")
        return len(pattern)
    if pattern is None:
        return default
    return config.positive("sliding_window_pattern")
