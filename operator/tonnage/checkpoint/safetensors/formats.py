"""Derive the formats of layers from the names of a checkpoint's tensors."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from tonnage.checkpoint.model import Checkpoint, DecoderLayer, ModelShape, Quantization
from tonnage.checkpoint.quantization.module_names import LINEAR_LAYERS, canonical_name
from tonnage.checkpoint.safetensors.headers import SafetensorsIndex
from tonnage.checkpoint.tensor_table import MAX_ROWS, TensorTable

TensorsByModule = Mapping[tuple[int, str], set[str]]
"""The tensors (`weight`, `weight_scale`, ...) by layer number and module name."""

_IN_LAYER: Final = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.([0-9]{1,4})\.(.+)", re.DOTALL)
"""Matches to the end of any name that begins like a layer, so that each name takes one pass."""

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
"""Tensors that only quantised layers have, in addition to or instead of `weight`."""


def make_checkpoint(
    shape: ModelShape,
    tensors: TensorTable | None = None,
    index: SafetensorsIndex | None = None,
    weights_bytes: int | None = None,
    revision: str | None = None,
) -> Checkpoint:
    """Return the checkpoint with a shape and the known facts of its files.

    The table of tensors takes precedence over `weights_bytes`, and that over the index. The names
    of tensors, if known, determine which layers are quantised.
    """
    if tensors is not None:
        is_plausible = len(tensors.rows) <= MAX_ROWS  # else use only the sizes
        if is_plausible:
            shape = _refine_shape(shape, _group_by_module(_list_names(tensors)))
        return Checkpoint(
            shape=shape,
            weights_bytes=tensors.total_bytes,
            bytes_by_dtype=tensors.by_dtype,
            revision=revision,
            tensors=tensors if is_plausible else None,
        )
    names = index.names if index is not None else ()
    index_bytes = index.total_bytes if index is not None else None
    return Checkpoint(
        shape=_refine_shape(shape, _group_by_module(names)),
        weights_bytes=index_bytes if weights_bytes is None else weights_bytes,
        revision=revision,
    )


def _list_names(table: TensorTable) -> Iterator[str]:
    return (name for row in table.rows for name in row.names())


def _group_by_module(names: Iterable[str]) -> TensorsByModule:
    tensors_by_module: dict[tuple[int, str], set[str]] = {}
    for name in names:
        path, _, tensor = name.rpartition(".")
        match = _IN_LAYER.search(path)
        if tensor and match is not None and "visual." not in name and "vision" not in name:
            module = canonical_name(_EXPERT.sub("experts.0.", f"{match[2]}."))[:-1]
            tensors_by_module.setdefault((int(match[1]), module), set()).add(tensor)
    return tensors_by_module


def _refine_shape(shape: ModelShape, tensors_by_module: TensorsByModule) -> ModelShape:
    """Return the shape with exceptions for the layers whose tensors are not quantised."""
    main = shape.quantization
    if main is None or not any(tensors & _QUANTIZED for tensors in tensors_by_module.values()):
        return shape
    kinds: dict[DecoderLayer, int] = {}
    order = []
    for index, kind in enumerate(shape.layer_order):
        layer = _refine_layer(shape.layer_kinds[kind], index, tensors_by_module)
        order.append(kinds.setdefault(layer, len(kinds)))
    return replace(shape, layer_kinds=tuple(kinds), layer_order=tuple(order))


def _refine_layer(
    layer: DecoderLayer, index: int, tensors_by_module: TensorsByModule
) -> DecoderLayer:
    exceptions: dict[str, Quantization | None] = dict(layer.exceptions)
    for linear, synonyms in LINEAR_LAYERS.items():
        for name in (linear, *synonyms):
            tensors = tensors_by_module.get((index, name))
            if tensors is None:
                continue
            if not tensors & _QUANTIZED:
                exceptions[linear] = None
            elif linear in exceptions and exceptions[linear] is None:
                del exceptions[linear]  # quantised, although the config ignores it
            break
    return replace(layer, exceptions=tuple(exceptions.items()))
