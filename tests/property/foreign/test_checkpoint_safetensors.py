"""Any bytes give sizes or a CheckpointError."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from math import prod

from hypothesis import given
from hypothesis import strategies as st

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors.headers import parse_header, parse_index, parse_table
from tonnage.checkpoint.tensor_table import TensorTable, dump_table, join_tables, tabulate

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)

entries = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["BF16", "F4", "U8", "nope"]) | json_values,
        "shape": st.lists(st.integers(-1, 4), max_size=3) | json_values,
        "data_offsets": st.lists(st.integers(-1, 40), max_size=3) | json_values,
    },
)

layouts = st.lists(
    st.tuples(
        st.sampled_from([("BF16", 2), ("F32", 4), ("U8", 1)]),
        st.lists(st.integers(0, 9), max_size=3),
    ),
    max_size=6,
)


def framed(text: bytes) -> bytes:
    return len(text).to_bytes(8, "little") + text


@contextmanager
def sizes_or_our_error() -> Iterator[None]:
    try:
        yield
    except CheckpointError as error:
        if len(str(error)) > 1000:
            raise AssertionError("a message as long as its input") from error


@given(st.binary(max_size=200) | st.binary(max_size=100).map(framed))
def test_any_bytes_are_sizes_or_a_checkpoint_error(data: bytes) -> None:
    with sizes_or_our_error():
        assert parse_header(data).total_bytes >= 0


@given(st.dictionaries(st.text(max_size=4), entries | json_values, max_size=3))
def test_any_header_is_sizes_or_a_checkpoint_error(header: dict[str, object]) -> None:
    with sizes_or_our_error():
        assert parse_header(framed(json.dumps(header).encode())).total_bytes >= 0


@given(json_values)
def test_any_index_is_read_or_a_checkpoint_error(value: object) -> None:
    with sizes_or_our_error():
        index = parse_index(json.dumps({"metadata": {"total_size": value}, "weight_map": value}))
        assert index.total_bytes is None or index.total_bytes >= 0


@given(layouts)
def test_a_valid_layout_is_summed_in_any_order(
    layout: list[tuple[tuple[str, int], list[int]]],
) -> None:
    header, want, offset = {}, dict[str, int](), 0
    for number, ((dtype, width), shape) in enumerate(layout):
        size = width
        for length in shape:
            size *= length
        entry = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        header[f"t{number}"] = entry
        offset += size
        want[dtype] = want.get(dtype, 0) + size
    shuffled = dict(reversed(header.items()))
    got = parse_header(framed(json.dumps(shuffled).encode()))
    assert {dtype: count for dtype, count in got.by_dtype if count} == {
        dtype: count for dtype, count in want.items() if count
    }


tensors = st.lists(
    st.tuples(
        st.sampled_from(["model.layers.{}.w", "visual.blocks.{}.b", "experts.{}.{}.scale", "norm"]),
        st.integers(0, 7),
        st.integers(0, 2),
        st.sampled_from(["BF16", "U8"]),
        st.lists(st.integers(0, 3), max_size=2),
    ),
    max_size=12,
)


@given(tensors, st.integers(0, 12))
def test_a_table_has_every_byte_however_files_are_split(
    given_tensors: list[tuple[str, int, int, str, list[int]]], cut: int
) -> None:
    named = [
        (pattern.format(first, second), dtype, tuple(shape))
        for pattern, first, second, dtype, shape in given_tensors
    ]
    whole = tabulate(named)
    widths = {"BF16": 2, "U8": 1}
    assert whole.total_bytes == sum(widths[dtype] * prod(shape) for _, dtype, shape in named)
    assert join_tables([tabulate(named[:cut]), tabulate(named[cut:])]) == whole
    assert parse_table(dump_table(whole)) == whole


@given(json_values)
def test_any_table_is_read_or_a_checkpoint_error(value: object) -> None:
    with sizes_or_our_error():
        assert isinstance(parse_table(json.dumps([value])), TensorTable)
