"""The tensors of a checkpoint as a short table: those that differ in a number only share a row."""

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
"""Numbers as ranges, both ends included: 3, 4, 5, 8 is ((3, 5), (8, 8))."""


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """Tensors of one dtype and shape whose names differ in numbers only: `*` stands for each.

    `layers` are the values of the first number, none where the name has no number; in each of these
    layers there are `per_layer` such tensors, one for every expert.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    layers: Ranges = ()
    per_layer: int = 1

    @property
    def elements(self) -> int:
        """Elements of one of them."""
        return prod(self.shape)

    def names(self) -> Iterator[str]:
        """The name in each layer; the numbers behind the layer's stay `*`."""
        if not self.layers:
            yield self.name
        for start, end in self.layers:
            for layer in range(start, end + 1):
                yield self.name.replace("*", str(layer), 1)

    def count_from(self, first: int, before: int | None = None) -> int:
        """How many lie in layers `first` to `before`, that one excluded (None: to the last)."""
        if not self.layers:
            return self.per_layer if first == 0 else 0
        held = sum(
            max(0, min(end + 1, end + 1 if before is None else before) - max(start, first))
            for start, end in self.layers
        )
        return held * self.per_layer


class TensorTable:
    """All tensors of a checkpoint, and how many bytes they are by safetensors dtype."""

    def __init__(self, rows: Iterable[StoredTensor]) -> None:
        self.rows = tuple(rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TensorTable) and self.rows == other.rows

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash(self.rows)  # once: tables are keys of caches on the hot path

    @cached_property
    def by_dtype(self) -> tuple[tuple[str, int], ...]:
        """Bytes by dtype, in order of dtype."""
        summed: Counter[str] = Counter()
        for row in self.rows:
            bits = BITS_BY_DTYPE[row.dtype]
            summed[row.dtype] += row.elements * bits // 8 * row.count_from(0)
        return tuple(sorted(summed.items()))

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(count for _, count in self.by_dtype)


def tabulate(tensors: Iterable[tuple[str, str, tuple[int, ...]]]) -> TensorTable:
    """The table of tensors given by name, dtype and shape.

    Rows whose layers hold different numbers of tensors are told apart.
    """
    counted: dict[tuple[str, str, tuple[int, ...]], Counter[int]] = {}
    for name, dtype, shape in tensors:
        number = _NUMBER.search(name)
        layer = int(number[0]) if number else -1
        key = (_NUMBER.sub("*", name), dtype, tuple(shape))
        counted.setdefault(key, Counter())[layer] += 1
    return TensorTable(sorted(_rows(counted), key=lambda row: (row.name, row.dtype, row.layers)))


def _rows(
    counted: Mapping[tuple[str, str, tuple[int, ...]], Counter[int]],
) -> Iterator[StoredTensor]:
    for (name, dtype, shape), layers in counted.items():
        for per_layer in sorted(set(layers.values())):
            held = sorted(layer for layer, count in layers.items() if count == per_layer)
            ranges = () if held == [-1] else _ranges(held)
            yield StoredTensor(name, dtype, shape, ranges, per_layer)


def _ranges(numbers: list[int]) -> Ranges:
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = (ranges[-1][0], number)
        else:
            ranges.append((number, number))
    return tuple(ranges)


def join_tables(tables: Iterable[TensorTable]) -> TensorTable:
    """The table of a checkpoint whose files have these."""
    return tabulate(tensor for table in tables for tensor in _expanded(table))


def _expanded(table: TensorTable) -> Iterator[tuple[str, str, tuple[int, ...]]]:
    for row in table.rows:
        for name in row.names():
            for _ in range(row.per_layer):
                yield name, row.dtype, row.shape


def dump_table(table: TensorTable) -> str:
    """The table as JSON: a list of [name, dtype, shape, layers, tensors in each layer]."""
    rows = [[row.name, row.dtype, row.shape, row.layers, row.per_layer] for row in table.rows]
    return json.dumps(rows, separators=(",", ":"))
