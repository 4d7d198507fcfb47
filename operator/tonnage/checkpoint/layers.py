"""Which layers attend to what: the whole context, a window of it, or a state of fixed size."""

from collections import Counter
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.architectures import Families
from tonnage.checkpoint.fields import ConfigFields
from tonnage.checkpoint.model import CheckpointError, UnsupportedArchitectureError

_KINDS: Final = {
    "full_attention": "full",
    "attention": "full",
    "global": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "sliding",
    "linear_attention": "linear",
}
"""Entries of `layer_types` as transformers writes them."""


@dataclass(frozen=True, slots=True)
class LayerKinds:
    """How many layers attend to `window` tokens (`sliding`) or keep a fixed state (`linear`)."""

    sliding: int = 0
    linear: int = 0
    window: int | None = None


def read_layer_kinds(config: ConfigFields, layers: int, families: Families) -> LayerKinds:
    """Counts the kinds of layers.

    Raises CheckpointError when the lists do not describe `layers` layers, and
    UnsupportedArchitectureError for kinds whose memory is not known.
    """
    window = config.optional_positive("sliding_window", "attention_chunk_size")
    types = config.names("layer_types")
    if types:
        return _counted(config, types, layers, window)
    interval = config.optional_positive("full_attention_interval")
    if interval is not None:
        return LayerKinds(linear=layers - layers // interval)
    if window is None:
        return LayerKinds()
    sliding = _windowed_layers(config, layers, families)
    return LayerKinds(sliding=sliding, window=window if sliding else None)


def _counted(
    config: ConfigFields, types: tuple[str, ...], layers: int, window: int | None
) -> LayerKinds:
    if len(types) < layers:
        raise config.wrong("layer_types", types, f"one entry for each of {layers} layers")
    unknown = sorted(set(types[:layers]) - set(_KINDS))
    if unknown:
        raise UnsupportedArchitectureError(
            f"layer_types has {unknown[0][:64]!r}: expected {', '.join(_KINDS)}"
        )
    kinds = Counter(_KINDS[kind] for kind in types[:layers])
    if kinds["sliding"] and window is None:
        raise CheckpointError("sliding_window is missing: layer_types has layers that attend to it")
    return LayerKinds(
        sliding=kinds["sliding"],
        linear=kinds["linear"],
        window=window if kinds["sliding"] else None,
    )


def _windowed_layers(config: ConfigFields, layers: int, families: Families) -> int:
    """Layers that attend to the window, where the config does not list them.

    A family that is not known counts as attending to everything, which costs more memory.
    """
    family = config.text("model_type") or ""
    if "use_sliding_window" in config:
        if not config.flag("use_sliding_window"):
            return 0
        full = config.count("max_window_layers")
        return max(0, layers - full)
    if family in families.chunk_pattern:
        return layers - layers // families.chunk_pattern[family]
    period = _pattern_period(config, families.window_pattern.get(family))
    if period is not None:
        return layers - layers // period
    return layers if family in families.window_everywhere else 0


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
