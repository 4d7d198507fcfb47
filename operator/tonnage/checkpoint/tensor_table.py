"""The tensors of a checkpoint as a short table: names that differ only in numbers share a row."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Final

MAX_ROWS: Final = 4096
"""Most rows of a table; published checkpoints have dozens to a few hundred."""

BITS_BY_DTYPE: Final[Mapping[str, int]] = {
    # Dtype::bitsize in tensor.rs, safetensors 0.7
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
    "BOOL": 8, "U8": 8, "I8": 8,
    "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8,
    "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32,
    "I64": 64, "U64": 64, "F64": 64, "C64": 64,
}  # fmt: skip

_NUMBER: Final = re.compile(r"(?<=\.)[0-9]{1,6}(?=\.|$)")

Ranges = tuple[tuple[int, int], ...]
"""Numbers as inclusive ranges: 3, 4, 5, 8 is ((3, 5), (8, 8))."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Tensors of one dtype and shape whose names differ only in numbers, which `*` replaces.

    `layers` are the values of the first number, () for a name without numbers. Each of these layers
    has `per_layer` such tensors, one for every expert.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layers: Ranges = ()
    per_layer: int = 1

    @property
    def elements(self) -> int:
        """Elements of one tensor."""
        return prod(self.shape)

    def names(self) -> Iterator[str]:
        """Yield the name for each layer; numbers after the layer's number stay `*`."""
        if not self.layers:
            yield self.name
        for start, end in self.layers:
            for layer in range(start, end + 1):
                yield self.name.replace("*", str(layer), 1)

    def count_from(self, first: int, before: int | None = None) -> int:
        """Count the tensors in layers from `first` to before `before` (None: to the last)."""
        if not self.layers:
            return self.per_layer if first == 0 else 0
        layers = sum(
            max(0, min(end + 1, end + 1 if before is None else before) - max(start, first))
            for start, end in self.layers
        )
        return layers * self.per_layer


class TensorTable:
    """All tensors of a checkpoint, and their bytes by safetensors dtype."""

    def __init__(self, rows: Iterable[StoredTensor]) -> None:
        self.rows = tuple(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorTable) and self.rows == other.rows

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.rows)  # cached: tables are keys of caches on the hot path

    @cached_property
    def by_dtype(self) -> tuple[tuple[str, int], ...]:
        """Bytes by dtype, sorted by dtype."""
        bytes_by_dtype: Counter[str] = Counter()
        for row in self.rows:
            bits = BITS_BY_DTYPE[row.dtype]
            bytes_by_dtype[row.dtype] += row.elements * bits // 8 * row.count_from(0)
        return tuple(sorted(bytes_by_dtype.items()))

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(count for _, count in self.by_dtype)


def tabulate(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> TensorTable:
    """Return the table of tensors given by name, dtype and shape.

    Layers with different numbers of tensors get separate rows.
    """
    counts: dict[tuple[str, str, tuple[int, ...]], Counter[int]] = {}
    for name, dtype, shape in tensors:
        number = _NUMBER.search(name)
        layer = int(number[0]) if number else -1
        key = (_NUMBER.sub("*", name), dtype, tuple(shape))
        counts.setdefault(key, Counter())[layer] += 1
    rows = _iterate_rows(counts)
    return TensorTable(sorted(rows, key=lambda row: (row.name, row.dtype, row.layers)))


def _iterate_rows(
    counts: Mapping[tuple[str, str, tuple[int, ...]], Counter[int]],
) -> Iterator[StoredTensor]:
    for (name, dtype, shape), count_by_layer in counts.items():
        for per_layer in sorted(set(count_by_layer.values())):
            layers = sorted(layer for layer, count in count_by_layer.items() if count == per_layer)
            ranges = () if layers == [-1] else _to_ranges(layers)
            yield StoredTensor(name, dtype, shape, ranges, per_layer)


def _to_ranges(numbers: list[int]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def join_tables(tables: Iterable[TensorTable]) -> TensorTable:
    """Merge the tables of a checkpoint's files."""
    return tabulate(tensor for table in tables for tensor in _expand(table))


def _expand(table: TensorTable) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for row in table.rows:
        for name in row.names():
            for _ in range(row.per_layer):
                yield name, row.dtype, row.shape


def dump_table(table: TensorTable) -> str:
    """Return the table as JSON: a list of [name, dtype, shape, layers, tensors in each layer]."""
    rows = [[row.name, row.dtype, row.shape, row.layers, row.per_layer] for row in table.rows]
    return json.dumps(rows, separators=(",", ":"))
