"""Headers and indexes of safetensors files, valid and hostile."""

import json
from typing import Any

import pytest

from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.safetensors.headers import (
    MAX_HEADER_BYTES,
    parse_bytes_by_dtype,
    parse_header,
    parse_header_length,
    parse_index,
    parse_table,
)
from tonnage.checkpoint.tensor_table import (
    StoredTensor,
    TensorTable,
    dump_table,
    join_tables,
    tabulate,
)


def header(content: object) -> bytes:
    if isinstance(content, dict):
        content = json.dumps(content)
    text = content.encode() if isinstance(content, str) else content
    assert isinstance(text, bytes)
    return len(text).to_bytes(8, "little") + text


def tensor(dtype: Any, shape: Any, *offsets: Any) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": list(offsets)}


def test_a_mixed_precision_file_is_summed_by_dtype() -> None:
    data = header(
        {
            "__metadata__": {"format": "pt"},
            "b": tensor("F8_E4M3", [128, 256], 32, 32 + 32768),
            "a": tensor("BF16", [4, 4], 0, 32),
            "scale": tensor("F32", [], 32800, 32804),
            "empty": tensor("BF16", [0, 7], 32804, 32804),
            "packed": tensor("F4", [10], 32804, 32809),
        }
    )
    got = parse_header(data + bytes(50))
    assert got.by_dtype == (("BF16", 32), ("F32", 4), ("F4", 5), ("F8_E4M3", 32768))
    assert got.total_bytes == 32809


def test_a_file_without_tensors_has_no_bytes() -> None:
    assert parse_header(header({"__metadata__": {}})).total_bytes == 0


def test_the_header_limit_is_that_of_the_format() -> None:
    assert parse_header_length(MAX_HEADER_BYTES.to_bytes(8, "little")) == MAX_HEADER_BYTES
    with pytest.raises(CheckpointError, match="declares 100000001"):
        parse_header_length((MAX_HEADER_BYTES + 1).to_bytes(8, "little"))


@pytest.mark.parametrize(
    ("data", "want_message"),
    [
        pytest.param(b"", "at least 8 bytes", id="an empty file"),
        pytest.param(b"<!DOCTYPE html>", "not a safetensors file", id="an error page"),
        pytest.param(bytes(8), "declares 0", id="a header of nothing"),
        pytest.param(header({"a": 1})[:-2], "ends after 6 of 8", id="a header cut off"),
        pytest.param(header("[1, 2]"), "a JSON list", id="no object"),
        pytest.param(header("{nope}"), "is not JSON", id="no JSON"),
        pytest.param(header(b'{"a": "\xff"}'), "UnicodeDecodeError", id="no UTF-8"),
        pytest.param(header("[" * 100_000), "RecursionError", id="nested without end"),
        pytest.param(header('{"a": ' + "9" * 5000 + "}"), "is not JSON", id="an endless number"),
        pytest.param(header({"w": 7}), "'w' is described by 7", id="a tensor that is a number"),
        pytest.param(
            header({"w": tensor("Q4_K", [1], 0, 1)}), "unknown dtype 'Q4_K'", id="a GGUF dtype"
        ),
        pytest.param(
            header({"w": tensor(["BF16"], [1], 0, 2)}), "unknown dtype", id="a dtype that is a list"
        ),
        pytest.param(
            header({"w": tensor("BF16", [-1], 0, 2)}), r"shape \[-1\]", id="a negative size"
        ),
        pytest.param(
            header({"w": tensor("BF16", [True], 0, 2)}), r"shape \[True\]", id="a size that is true"
        ),
        pytest.param(
            header({"w": tensor("BF16", 5, 0, 2)}), "shape 5", id="a shape that is a number"
        ),
        pytest.param(
            header({"w": tensor("BF16", [2**40] * 999, 0, 2)}),
            "no machine can hold",
            id="a product without end",
        ),
        pytest.param(
            header({"w": tensor("BF16", [3], 0, 4)}),
            "takes 4 bytes .* 3 elements of BF16 take 6",
            id="offsets that contradict the shape",
        ),
        pytest.param(header({"w": tensor("F4", [3], 0, 1)}), "take 1.5", id="half a byte"),
        pytest.param(
            header({"w": tensor("BF16", [1], 2, 0)}), "takes -2 bytes", id="offsets backwards"
        ),
        pytest.param(header({"w": tensor("BF16", [1], 0)}), "two sizes", id="one offset"),
        pytest.param(
            header({"w": tensor("BF16", [1], 0.0, 2.0)}), "two sizes", id="offsets with fractions"
        ),
        pytest.param(
            header({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 2, 6)}),
            "'b' begins at byte 2, but the one before it ends at 4",
            id="tensors that overlap",
        ),
        pytest.param(
            header({"a": tensor("U8", [4], 0, 4), "b": tensor("U8", [4], 8, 12)}),
            "'b' begins at byte 8",
            id="a gap between tensors",
        ),
    ],
)
def test_an_invalid_header_is_refused(data: bytes, want_message: str) -> None:
    with pytest.raises(CheckpointError, match=want_message):
        parse_header(data)


def test_messages_are_short_for_any_file() -> None:
    data = header({"w" * 100_000: tensor("x" * 100_000, [1], 0, 1)})
    with pytest.raises(CheckpointError) as caught:
        parse_header(data)
    assert len(str(caught.value)) < 500


EXPERT = "model.layers.{layer}.mlp.experts.{expert}.w1.weight"


def experts(layers: range, count: int = 4) -> list[tuple[str, str, tuple[int, ...]]]:
    return [
        (EXPERT.format(layer=layer, expert=expert), "BF16", (8, 2))
        for layer in layers
        for expert in range(count)
    ]


def test_tensors_that_differ_only_in_numbers_share_a_row() -> None:
    table = tabulate([("lm_head.weight", "BF16", (10, 2)), *experts(range(3, 6))])
    assert table.rows == (
        StoredTensor("lm_head.weight", "BF16", (10, 2)),
        StoredTensor("model.layers.*.mlp.experts.*.w1.weight", "BF16", (8, 2), ((3, 5),), 4),
    )
    assert table.total_bytes == 40 + 12 * 32


def test_layers_with_different_numbers_of_tensors_have_separate_rows() -> None:
    table = tabulate([*experts(range(2)), *experts(range(4, 5), count=2)])
    assert [(row.layers, row.per_layer) for row in table.rows] == [(((0, 1),), 4), (((4, 4),), 2)]
    assert [row.count_from(1) for row in table.rows] == [4, 2]
    assert [row.count_from(0, 4) for row in table.rows] == [8, 0]


def test_tables_of_files_merge_to_the_table_of_the_checkpoint() -> None:
    tensors = [("norm.weight", "F32", (7,)), *experts(range(5))]
    parts = [tabulate(tensors[:3]), tabulate(tensors[3:9]), tabulate(tensors[9:])]
    assert join_tables(parts) == tabulate(tensors)
    assert join_tables([]) == TensorTable(())


def test_a_table_is_read_back() -> None:
    table = tabulate([("norm.weight", "F32", (7,)), ("scale", "F32", ()), *experts(range(5))])
    assert parse_table(dump_table(table)) == table


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        ("{", "is not JSON"),
        ("{}", "no list of at most 4096 rows"),
        (json.dumps([["a", "U8", [], [], 1]] * 4097), "no list of at most 4096 rows"),
        ('[["a", "U8", [1]]]', "expected .name, dtype, shape"),
        ('[[1, "U8", [1], [], 1]]', "expected .name, dtype, shape"),
        ('[["a", "U9", [1], [], 1]]', "unknown dtype 'U9'"),
        ('[["a", "U8", [-1], [], 1]]', "shape"),
        ('[["a", "U8", [1], [[3, 2]], 1]]', "layers as pairs"),
        ('[["a", "U8", [1], [[0, 1000000]], 1]]', "layers as pairs"),
        ('[["a", "U8", [1], [[0, 200000]], 1]]', "200001 layers"),
        ('[["a", "U8", [1], [], 0]]', "number of tensors in each layer"),
        ('[["a", "U8", [9007199254740992], [], 2]]', "adds up to"),
    ],
)
def test_an_invalid_table_is_refused(text: str, want_message: str) -> None:
    with pytest.raises(CheckpointError, match=want_message) as caught:
        parse_table(text)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("index", "want_total", "want_files"),
    [
        pytest.param(
            {
                "metadata": {"total_size": 20},
                "weight_map": {
                    "a": "m-2.safetensors",
                    "b": "m-1.safetensors",
                    "c": "m-1.safetensors",
                },
            },
            20,
            ("m-1.safetensors", "m-2.safetensors"),
            id="as transformers writes it",
        ),
        pytest.param({"metadata": {"total_size": 20.0}}, 20, (), id="trimmed, with a float"),
        pytest.param(
            {"weight_map": {"a": "sub/m.safetensors"}},
            None,
            ("sub/m.safetensors",),
            id="without metadata",
        ),
    ],
)
def test_an_index_has_a_size_and_files(
    index: object, want_total: int | None, want_files: tuple[str, ...]
) -> None:
    got = parse_index(json.dumps(index))
    assert (got.total_bytes, got.files) == (want_total, want_files)
    assert set(got.names) <= {"a", "b", "c"}


@pytest.mark.parametrize(
    ("index", "want_message"),
    [
        pytest.param("[]", "a JSON list", id="no object"),
        pytest.param(
            '{"metadata": {"total_size": -1}}', "total_size .* is -1", id="a negative size"
        ),
        pytest.param('{"metadata": {"total_size": 1e400}}', "total_size .* is inf", id="infinity"),
        pytest.param('{"metadata": {"total_size": "12"}}', "is '12'", id="a size in quotes"),
        pytest.param('{"weight_map": []}', "no object", id="a list of names"),
        pytest.param('{"weight_map": {"a": 1}}', "the file 1", id="a name that is a number"),
        pytest.param('{"weight_map": {"a": "../../etc/passwd"}}', "etc/passwd", id="a way out"),
        pytest.param('{"weight_map": {"a": "/etc/passwd"}}', "etc/passwd", id="an absolute path"),
        pytest.param('{"weight_map": {"a": "x/../../y"}}', "x/..", id="a way out further in"),
        pytest.param('{"weight_map": {"a": "http://evil/m"}}', "http", id="another server"),
        pytest.param(
            json.dumps({"weight_map": {str(n): f"m-{n}.safetensors" for n in range(1001)}}),
            "1001 files, more than 1000",
            id="too many files",
        ),
        pytest.param(b" " * (24 * 1024**2 + 1), "more than 25165824", id="too large to parse"),
    ],
)
def test_an_invalid_index_is_refused(index: str | bytes, want_message: str) -> None:
    with pytest.raises(CheckpointError, match=want_message):
        parse_index(index)


@pytest.mark.parametrize(
    ("text", "want_message"),
    [
        ('{"BF17": 1}', "unknown dtype 'BF17'"),
        ('{"BF16": "1"}', "size of BF16 is '1'"),
        ('{"BF16": -1}', "size of BF16 is -1"),
        ("null", "a JSON NoneType"),
    ],
)
def test_invalid_sizes_by_dtype_are_refused(text: str, want_message: str) -> None:
    with pytest.raises(CheckpointError, match=want_message):
        parse_bytes_by_dtype(text)


def test_sizes_by_dtype_are_parsed() -> None:
    assert parse_bytes_by_dtype('{"F32": 1, "BF16": 2}').by_dtype == (("BF16", 2), ("F32", 1))
