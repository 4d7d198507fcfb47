"""Reading checkpoints from inline facts and from ConfigMaps."""

import json

import pytest

from tests.support.foreign.tiny_model import CONFIG
from tonnage.api.model import ConfigMapSource, InlineSource
from tonnage.checkpoint.facts import (
    adapter_from_config_map,
    checkpoint_from_config_map,
    checkpoint_from_inline,
)
from tonnage.checkpoint.model import CheckpointError, UnsupportedArchitectureError

CONFIG_JSON = CONFIG.start.decode()
INDEX_JSON = json.dumps({"metadata": {"total_size": 300}, "weight_map": {"a": "m.safetensors"}})
SOURCE = ConfigMapSource(name="tiny-facts")


def test_inline_facts_are_a_checkpoint() -> None:
    got = checkpoint_from_inline(InlineSource(config=json.loads(CONFIG_JSON), weights_bytes=7))
    assert got.shape.hidden_size == 64
    assert (got.weights_bytes, got.bytes_by_dtype, got.revision) == (7, (), None)


def test_errors_of_inline_facts_name_the_inline_config() -> None:
    with pytest.raises(CheckpointError, match=r"^inline config: architectures"):
        checkpoint_from_inline(InlineSource(config={}))


def test_an_inline_config_is_parsed_once_and_never_confused_with_another() -> None:
    config = json.loads(CONFIG_JSON)
    one, again = (checkpoint_from_inline(InlineSource(config=dict(config))) for _ in range(2))
    assert one.shape is again.shape
    other = config | {"vocab_size": config["vocab_size"] + 1}
    assert checkpoint_from_inline(InlineSource(config=other)).shape != one.shape


def test_an_inline_config_that_is_nested_too_deeply_is_refused() -> None:
    config: dict[str, object] = {}
    for _ in range(100_000):
        config = {"a": config}
    with pytest.raises(CheckpointError, match="inline config: it is nested too deeply"):
        checkpoint_from_inline(InlineSource.model_construct(config=config))


@pytest.mark.parametrize(
    ("sizes", "want_bytes", "want_by_dtype"),
    [
        pytest.param({}, None, (), id="the config alone"),
        pytest.param({"model.safetensors.index.json": INDEX_JSON}, 300, (), id="the index"),
        pytest.param(
            {"model.safetensors.index.json": '{"weight_map": {}}'},
            None,
            (),
            id="an index without size",
        ),
        pytest.param(
            {"model.safetensors.index.json": INDEX_JSON, "weightsBytes": " 200\n"},
            200,
            (),
            id="weightsBytes takes precedence over the index",
        ),
        pytest.param(
            {"weightsBytes": "200", "bytesByDtype": '{"F32": 20, "BF16": 80}'},
            100,
            (("BF16", 80), ("F32", 20)),
            id="sizes by dtype take precedence over both",
        ),
    ],
)
def test_the_most_exact_size_of_a_config_map_counts(
    sizes: dict[str, str], want_bytes: int | None, want_by_dtype: tuple[tuple[str, int], ...]
) -> None:
    got = checkpoint_from_config_map(SOURCE, {"config.json": CONFIG_JSON, **sizes})
    assert got.shape.layers == 2
    assert (got.weights_bytes, got.bytes_by_dtype) == (want_bytes, want_by_dtype)


def test_a_table_of_tensors_takes_precedence_over_all_sizes() -> None:
    table = '[["lm_head.weight","BF16",[10,4],[],1]]'
    data = {"config.json": CONFIG_JSON, "tensors": table, "weightsBytes": "7"}
    got = checkpoint_from_config_map(SOURCE, data)
    assert got.tensors is not None
    assert (got.weights_bytes, got.bytes_by_dtype) == (80, (("BF16", 80),))


@pytest.mark.parametrize(
    ("data", "want_message"),
    [
        pytest.param(
            {"config.json": CONFIG_JSON, "tensors": "{}"},
            "key tensors: the table of tensors is no list",
            id="a table that is no list",
        ),
        pytest.param({}, "ConfigMap tiny-facts has no key config.json: put", id="nothing yet"),
        pytest.param({"config.json": "{"}, "tiny-facts, key config.json: .*JSON", id="no JSON"),
        pytest.param(
            {"config.json": CONFIG_JSON, "model.safetensors.index.json": "[]"},
            "key model.safetensors.index.json: the safetensors index is a JSON list",
            id="an index that is a list",
        ),
        pytest.param(
            {"config.json": CONFIG_JSON, "bytesByDtype": '{"BF99": 1}'},
            "key bytesByDtype: .*unknown dtype 'BF99'",
            id="an unknown dtype",
        ),
    ],
)
def test_errors_of_a_config_map_name_it_and_the_key(
    data: dict[str, str], want_message: str
) -> None:
    with pytest.raises(CheckpointError, match=want_message):
        checkpoint_from_config_map(SOURCE, data)


@pytest.mark.parametrize("text", ["", "-1", "0", "1.5", "140Gi", "١٢", "9" * 5000, str(2**53 + 1)])
def test_an_invalid_size_is_refused(text: str) -> None:
    with pytest.raises(
        CheckpointError, match=r"key weightsBytes: .* is no number of bytes"
    ) as caught:
        checkpoint_from_config_map(SOURCE, {"config.json": CONFIG_JSON, "weightsBytes": text})
    assert len(str(caught.value)) < 300


def test_an_unsupported_architecture_keeps_its_error_class() -> None:
    config = json.dumps({"architectures": ["BertModel"], "model_type": "bert"})
    with pytest.raises(UnsupportedArchitectureError, match=r"tiny-facts, key config\.json: "):
        checkpoint_from_config_map(SOURCE, {"config.json": config})


@pytest.mark.parametrize(
    ("data", "want"),
    [
        ({}, "ConfigMap legal has no key adapter_config.json: put that file"),
        ({"adapter_config.json": "{"}, "ConfigMap legal: adapter_config.json"),
        (
            {"adapter_config.json": '{"r": 8, "target_modules": ["q"], "use_dora": true}'},
            "ConfigMap legal: adapter_config.json: use_dora is set",
        ),
        (
            {
                "adapter_config.json": '{"r": 8, "lora_alpha": 16, "target_modules": ["q"]}',
                "tensors": "{}",
            },
            "ConfigMap legal, key tensors: the table of tensors is no list",
        ),
        (
            {
                "adapter_config.json": '{"r": 8, "lora_alpha": 16, "target_modules": ["q"]}',
                "tensors": "[" + " " * 100_000 + "]",
            },
            "ConfigMap legal, key tensors: the table is longer than 100000 characters",
        ),
    ],
)
def test_errors_of_an_adapter_name_the_config_map(data: dict[str, str], want: str) -> None:
    with pytest.raises(CheckpointError) as error:
        adapter_from_config_map("legal", data)
    assert str(error.value).startswith(want)
