"""Read the kind of each layer: full attention, a window, a chunk, or linear attention."""

from enum import StrEnum
from typing import Final

from tonnage.catalog.models.families import Family
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, UnsupportedArchitectureError


class LayerKind(StrEnum):
    """The kind of a layer's mixer."""

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
"""Kinds by the entries of `layer_types` that transformers writes."""


_WINDOW: Final = "sliding_window"


def read_window(config: ConfigFields) -> int | None:
    """Return the tokens of a sliding window or of a chunk, None without either."""
    names = (_WINDOW, "sliding_window_size", "attention_chunk_size")
    return config.count(*names) or None


def read_layer_kinds(config: ConfigFields, layers: int, family: Family) -> tuple[LayerKind, ...]:
    """Return the kind of each of `layers` layers, by the first rule that the config matches.

    Raises CheckpointError when the config lists fewer than `layers` layers, and
    UnsupportedArchitectureError for kinds of unknown memory.
    """
    types = config.names("layer_types")
    if types:
        return _parse_layer_types(config, types, layers)
    pattern = config.flags("hybrid_layer_pattern")  # MiMo-V2
    if len(pattern) >= layers:
        return tuple(
            LayerKind.SLIDING if is_windowed else LayerKind.FULL for is_windowed in pattern[:layers]
        )
    interval = config.optional_positive("full_attention_interval")
    if interval is not None:
        return _make_every_nth_full(layers, interval, LayerKind.LINEAR)
    if read_window(config) is None:
        return (LayerKind.FULL,) * layers
    return _read_window_kinds(config, layers, family)


def _parse_layer_types(
    config: ConfigFields, types: tuple[str, ...], layers: int
) -> tuple[LayerKind, ...]:
    if len(types) < layers:
        raise config.invalid("layer_types", types, f"one entry for each of {layers} layers")
    unknown = sorted(set(types[:layers]) - set(_KINDS))
    if unknown:
        raise UnsupportedArchitectureError(
            f"layer_types has {unknown[0][:64]!r}: expected {', '.join(_KINDS)}"
        )
    kinds = tuple(_KINDS[kind] for kind in types[:layers])
    if read_window(config) is None and {LayerKind.SLIDING, LayerKind.CHUNKED} & set(kinds):
        raise CheckpointError("sliding_window is missing: layer_types has layers that attend to it")
    return kinds


def _make_every_nth_full(layers: int, period: int, others: LayerKind) -> tuple[LayerKind, ...]:
    return tuple(others if (index + 1) % period else LayerKind.FULL for index in range(layers))


def _read_window_kinds(config: ConfigFields, layers: int, family: Family) -> tuple[LayerKind, ...]:
    """Return the kinds of layers with a window that the config does not list.

    Without a pattern, every layer has the window (vLLM 0.32.0, engine/arg_utils.py
    create_engine_config).
    """
    if "use_sliding_window" in config:
        if not config.flag("use_sliding_window"):
            return (LayerKind.FULL,) * layers
        full_layers = min(layers, config.count("max_window_layers"))
        return (LayerKind.FULL,) * full_layers + (LayerKind.SLIDING,) * (layers - full_layers)
    if family.chunk_every is not None:
        return _make_every_nth_full(layers, family.chunk_every, LayerKind.CHUNKED)
    period = _read_pattern_period(config, family.window_every)
    if period is not None:
        return _make_every_nth_full(layers, period, LayerKind.SLIDING)
    return (LayerKind.SLIDING if config.count(_WINDOW) else LayerKind.FULL,) * layers


def _read_pattern_period(config: ConfigFields, default: int | None) -> int | None:
    """Return the distance between full layers, from a number or a string like LLLG (Exaone)."""
    pattern = config.value("sliding_window_pattern")
    if isinstance(pattern, str):
        if not pattern or set(pattern) != {"L", "G"} or pattern.count("G") != 1:
            raise config.invalid("sliding_window_pattern", pattern, "a pattern such as LLLG")
        return len(pattern)
    if pattern is None:
        return default
    return config.positive("sliding_window_pattern")
