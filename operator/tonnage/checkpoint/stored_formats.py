"""What the tensors of a checkpoint tell of its layers, which its config may leave unsaid."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.model import Checkpoint, DecoderLayer, ModelShape, Quantization
from tonnage.checkpoint.module_names import LINEAR_LAYERS, modern_name
from tonnage.checkpoint.safetensors import SafetensorsIndex
from tonnage.checkpoint.stored_tensors import MAX_ROWS, TensorTable

Found = Mapping[tuple[int, str], set[str]]
"""The tensors (`weight`, `weight_scale`, ...) of each module of each layer."""

_IN_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.([0-9]{1,4})\.(.+)", re.DOTALL)
"""Whatever begins like a layer ends like one: a name is walked through once, however it is made."""

_EXPERT: Final = re.compile(r"experts\.(?:[0-9]+|\*)\.")
_QUANTIZED: Final = frozenset(
    (
        "weight_scale",
        "weight_scale_inv",
        "weight_scale_2",
        "weight_packed",
        "weight_global_scale",
        "qweight",
        "scales",
    )
)
"""Tensors that only quantised layers have beside or instead of `weight`."""


def make_checkpoint(
    shape: ModelShape,
    tensors: TensorTable | None = None,
    index: SafetensorsIndex | None = None,
    weights_bytes: int | None = None,
    revision: str | None = None,
) -> Checkpoint:
    """The model of that shape with all that is known of its files.

    A table of tensors stands above a size that is given, that above the one in the index. Which
    layers are quantised is taken from the tensors' names where there are any.
    """
    if tensors is not None:
        readable = len(tensors.rows) <= MAX_ROWS  # else only the sizes are believed
        return Checkpoint(
            shape=_refined(shape, _modules_of(_table_names(tensors))) if readable else shape,
            weights_bytes=tensors.total_bytes,
            bytes_by_dtype=tensors.by_dtype,
            revision=revision,
            tensors=tensors if readable else None,
        )
    names = index.names if index is not None else ()
    stated = index.total_bytes if index is not None else None
    return Checkpoint(
        shape=_refined(shape, _modules_of(names)),
        weights_bytes=stated if weights_bytes is None else weights_bytes,
        revision=revision,
    )


def _table_names(table: TensorTable) -> Iterator[str]:
    return (name for row in table.rows for name in row.names())


def _modules_of(names: Iterable[str]) -> Found:
    found: dict[tuple[int, str], set[str]] = {}
    for name in names:
        path, _, tensor = name.rpartition(".")
        match = _IN_LAYER.search(path)
        if tensor and match is not None and "visual." not in name and "vision" not in name:
            module = modern_name(_EXPERT.sub("experts.0.", f"{match[2]}."))[:-1]
            found.setdefault((int(match[1]), module), set()).add(tensor)
    return found


def _refined(shape: ModelShape, found: Found) -> ModelShape:
    """The shape whose layers are quantised where their tensors are."""
    main = shape.quantization
    if main is None or not any(tensors & _QUANTIZED for tensors in found.values()):
        return shape
    kinds: dict[DecoderLayer, int] = {}
    order = []
    for index, kind in enumerate(shape.layer_order):
        layer = _refined_layer(shape.layer_kinds[kind], index, found)
        order.append(kinds.setdefault(layer, len(kinds)))
    return replace(shape, layer_kinds=tuple(kinds), layer_order=tuple(order))


def _refined_layer(layer: DecoderLayer, index: int, found: Found) -> DecoderLayer:
    exceptions: dict[str, Quantization | None] = dict(layer.exceptions)
    for linear, synonyms in LINEAR_LAYERS.items():
        for name in (linear, *synonyms):
            tensors = found.get((index, name))
            if tensors is None:
                continue
            if not tensors & _QUANTIZED:
                exceptions[linear] = None
            elif linear in exceptions and exceptions[linear] is None:
                del exceptions[linear]  # stored as the model, whatever the config says
            break
    return replace(layer, exceptions=tuple(exceptions.items()))
