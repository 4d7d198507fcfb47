"""Parse the headers and the index of a safetensors checkpoint.

A safetensors file starts with 8 bytes, the little-endian length of its header, and the header: a
JSON object from tensor name to dtype, shape and offsets in the data that follows. So the first
kilobytes of a file of gigabytes list its tensors. Format: huggingface/safetensors, README and
safetensors/src/tensor.rs, whose checks this module repeats.
"""

import json
import re
import reprlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.tensor_table import (
    BITS_BY_DTYPE,
    MAX_ROWS,
    Ranges,
    StoredTensor,
    TensorTable,
    tabulate,
)

LENGTH_BYTES: Final = 8
"""Size of the header's length at the start of a file."""

MAX_HEADER_BYTES: Final = 100_000_000
"""The format's own limit (MAX_HEADER_SIZE in tensor.rs)."""

MAX_INDEX_BYTES: Final = 24 * 1024**2
"""Largest index; that of a model of 140,000 tensors has 15 MB. Decoding allocates four times as
much."""

MAX_JSON_VALUES: Final = 2_000_000
"""Most values of one text, counted by brackets and commas; the header of 140,000 tensors has 1.1
million. Parsed, a text of only brackets takes thirty times its size in memory."""

MAX_INDEX_VALUES: Final = 500_000
"""Most values of an index, counted likewise; it has one for each tensor. The operator reads it, and
two million names of 12 letters would take 310 MiB."""

MAX_FILES: Final = 1000
"""Most files of one checkpoint; Llama 3.1 405B, an early extreme, has 191."""

MAX_NAMES: Final = 200_000
"""Most layers over all rows of a table; 300 rows of 100 layers are 30,000."""

MAX_LAYER_NUMBER: Final = 10**6
"""Upper bound of layer numbers; a longer number is part of a name."""

MAX_TENSOR_BYTES: Final = 2**53
"""Limit of every size: JSON parsers represent it exactly, and no model is larger."""

_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_][\w.+-]*(/[A-Za-z0-9_][\w.+-]*)*", re.ASCII)


@dataclass(frozen=True, slots=True)
class TensorBytes:
    """Bytes of tensors by safetensors dtype (`BF16`, `F8_E4M3`, ...), in order of dtype."""

    by_dtype: tuple[tuple[str, int], ...]

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors."""
        return sum(count for _, count in self.by_dtype)


@dataclass(frozen=True, slots=True)
class SafetensorsIndex:
    """The content of `model.safetensors.index.json`: files, tensors, and their bytes if present."""

    total_bytes: int | None
    files: tuple[str, ...]
    names: tuple[str, ...] = ()


def parse_header_length(start: bytes) -> int:
    """Return the bytes of the JSON header that follows the first 8 bytes of a file.

    Raises CheckpointError for fewer than 8 bytes and for lengths outside the format's limits.
    """
    if len(start) < LENGTH_BYTES:
        raise CheckpointError(
            f"a safetensors file has at least {LENGTH_BYTES} bytes, this one has {len(start)}"
        )
    length = int.from_bytes(start[:LENGTH_BYTES], "little")
    if not 2 <= length <= MAX_HEADER_BYTES:
        raise CheckpointError(
            f"a safetensors header has 2 to {MAX_HEADER_BYTES} bytes, this file declares {length}: "
            "it is not a safetensors file"
        )
    return length


def parse_header(data: bytes) -> TensorTable:
    """Return the tensors of one file, from its start.

    `data` holds at least the length and the complete header. Raises CheckpointError for truncated
    data and for inconsistent dtypes, shapes and offsets.
    """
    length = parse_header_length(data)
    if len(data) < LENGTH_BYTES + length:
        raise CheckpointError(
            f"the safetensors header ends after {len(data) - LENGTH_BYTES} of {length} bytes"
        )
    header = _parse_object(data[LENGTH_BYTES : LENGTH_BYTES + length], "the safetensors header")
    tensors = [
        _parse_tensor(name, entry) for name, entry in header.items() if name != "__metadata__"
    ]
    _check_offsets(tensors)
    return tabulate((tensor.name, tensor.dtype, tensor.shape) for tensor in tensors)


def parse_index(text: str | bytes) -> SafetensorsIndex:
    """Return the content of an index. Raises CheckpointError for malformed and oversized ones."""
    what = "the safetensors index"
    if len(text) > MAX_INDEX_BYTES:
        raise CheckpointError(f"{what} has {len(text)} bytes, more than {MAX_INDEX_BYTES}")
    index = _parse_object(text, what, MAX_INDEX_VALUES)
    if not index.keys() & {"metadata", "weight_map"}:
        raise CheckpointError(f"{what} has neither metadata nor a weight_map; is it another file?")
    metadata, weight_map = index.get("metadata"), index.get("weight_map", {})
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    return SafetensorsIndex(
        total_bytes=None if total is None else _parse_size(total, f"metadata.total_size of {what}"),
        files=_parse_file_names(weight_map),
        names=tuple(weight_map) if isinstance(weight_map, dict) else (),
    )


def parse_bytes_by_dtype(text: str | bytes) -> TensorBytes:
    """Parse a JSON object from dtype to bytes.

    Raises CheckpointError for unknown dtypes and invalid sizes.
    """
    sizes = _parse_object(text, "the sizes by dtype")
    for dtype in sizes:
        _parse_dtype_bits(dtype, "the sizes by dtype")
    return _sum_by_dtype(
        (dtype, _parse_size(size, f"size of {dtype}")) for dtype, size in sizes.items()
    )


def parse_table(text: str | bytes) -> TensorTable:
    """Parse a table that `dump_table` wrote.

    Raises CheckpointError for malformed tables, and for ones beyond MAX_ROWS or MAX_TENSOR_BYTES.
    """
    rows = _parse_json(text, "the table of tensors")
    if not isinstance(rows, list) or len(rows) > MAX_ROWS:
        raise CheckpointError(f"the table of tensors is no list of at most {MAX_ROWS} rows")
    table = TensorTable(_parse_row(row) for row in rows)
    names = sum(end - start + 1 for row in table.rows for start, end in row.layers)
    if names > MAX_NAMES:
        raise CheckpointError(
            f"the table of tensors lists {names} layers, more than {MAX_NAMES} over all rows"
        )
    if table.total_bytes > MAX_TENSOR_BYTES:
        raise CheckpointError(
            f"the table of tensors adds up to {table.total_bytes} bytes, "
            f"at most {MAX_TENSOR_BYTES} were expected"
        )
    return table


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int


def _parse_json(text: str | bytes, what: str, max_values: int = MAX_JSON_VALUES) -> object:
    if _count_values(text) > max_values:
        raise CheckpointError(f"{what} has more than {max_values} values")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{what} is not JSON: {type(error).__name__}") from error


def _count_values(text: str | bytes) -> int:
    """Return an upper bound of the number of values, as characters inside strings count, too."""
    if isinstance(text, str):
        return sum(text.count(character) for character in "[{,")
    return sum(text.count(character) for character in (b"[", b"{", b","))


def _parse_row(row: object) -> StoredTensor:
    where = f"row {reprlib.repr(row)} of the table of tensors"
    if not (isinstance(row, list) and len(row) == 5 and isinstance(row[0], str)):
        raise CheckpointError(f"{where}: expected [name, dtype, shape, layers, tensors in each]")
    name, dtype, shape, layers, per_layer = row
    _parse_dtype_bits(dtype, where)
    _count_elements(shape, where)
    if not (_is_size(per_layer) and per_layer):
        raise CheckpointError(f"{where}: expected a number of tensors in each layer")
    return StoredTensor(name, str(dtype), tuple(shape), _parse_ranges(layers, where), per_layer)


def _parse_ranges(ranges: object, where: str) -> Ranges:
    if isinstance(ranges, list) and len(ranges) <= MAX_ROWS and all(map(_is_range, ranges)):
        return tuple((start, end) for start, end in ranges)
    raise CheckpointError(f"{where}: expected layers as pairs of the first and the last")


def _is_range(pair: object) -> bool:
    if not (isinstance(pair, list) and len(pair) == 2 and all(map(_is_size, pair))):
        return False
    start, end = pair
    return bool(start <= end < MAX_LAYER_NUMBER)


def _parse_object(
    text: str | bytes, what: str, max_values: int = MAX_JSON_VALUES
) -> dict[str, object]:
    parsed = _parse_json(text, what, max_values)
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{what} is a JSON {type(parsed).__name__}, an object was expected")
    return parsed


def _parse_tensor(name: str, entry: object) -> _Tensor:
    where = f"tensor {name[:80]!r}"
    if not isinstance(entry, dict):
        raise CheckpointError(
            f"{where} is described by {reprlib.repr(entry)}, an object was expected"
        )
    dtype, offsets = entry.get("dtype"), entry.get("data_offsets")
    bits = _parse_dtype_bits(dtype, where)
    elements = _count_elements(entry.get("shape"), where)
    if not (isinstance(offsets, list) and len(offsets) == 2 and all(map(_is_size, offsets))):
        raise CheckpointError(
            f"{where} has data_offsets {reprlib.repr(offsets)}, two sizes were expected"
        )
    begin, end = offsets
    if (end - begin) * 8 != elements * bits:
        raise CheckpointError(
            f"{where} takes {end - begin} bytes by its offsets, "
            f"but {elements} elements of {dtype} take {elements * bits / 8:g}"
        )
    shape = entry.get("shape")
    return _Tensor(name, str(dtype), tuple(shape if isinstance(shape, list) else ()), begin, end)


def _parse_dtype_bits(dtype: object, where: str) -> int:
    bits = BITS_BY_DTYPE.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise CheckpointError(
            f"{where} has the unknown dtype {reprlib.repr(dtype)}; "
            f"known are {', '.join(sorted(BITS_BY_DTYPE))}"
        )
    return bits


def _count_elements(shape: object, where: str) -> int:
    if not (isinstance(shape, list) and all(map(_is_size, shape))):
        raise CheckpointError(
            f"{where} has shape {reprlib.repr(shape)}, a list of sizes was expected"
        )
    elements = 1
    for size in shape:
        elements *= size
        if elements > MAX_TENSOR_BYTES:  # in the loop: a product of many sizes becomes enormous
            raise CheckpointError(
                f"{where} has shape {reprlib.repr(shape)}, which no machine can hold"
            )
    return elements


def _check_offsets(tensors: Iterable[_Tensor]) -> None:
    """Raise CheckpointError unless the tensors cover the data without gap or overlap."""
    expected = 0
    for tensor in sorted(tensors, key=lambda tensor: (tensor.begin, tensor.end)):
        if tensor.begin != expected:
            raise CheckpointError(
                f"tensor {tensor.name[:80]!r} begins at byte {tensor.begin}, "
                f"but the one before it ends at {expected}"
            )
        expected = tensor.end


def _parse_file_names(weight_map: object) -> tuple[str, ...]:
    if not isinstance(weight_map, dict):
        raise CheckpointError("weight_map of the safetensors index is no object")
    names = {name for name in weight_map.values() if isinstance(name, str)}
    if len(names) > MAX_FILES:
        raise CheckpointError(
            f"the safetensors index names {len(names)} files, more than {MAX_FILES}"
        )
    for name in weight_map.values():
        # A name becomes part of a path and of a URL, which must stay inside the repository.
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name):
            raise CheckpointError(f"the safetensors index names the file {reprlib.repr(name)}")
    return tuple(sorted(names))


def _parse_size(value: object, what: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # some tools write 16060522496.0
    if isinstance(value, int) and _is_size(value):
        return value
    raise CheckpointError(f"{what} is {reprlib.repr(value)}, a number of bytes was expected")


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_TENSOR_BYTES


def _sum_by_dtype(sizes: Iterable[tuple[str, int]]) -> TensorBytes:
    bytes_by_dtype: Counter[str] = Counter()
    for dtype, size in sizes:
        bytes_by_dtype[dtype] += size
    return TensorBytes(tuple(sorted(bytes_by_dtype.items())))
