"""The longest context: the length in config.json, and how vLLM releases interpret it."""

import json
from json import dumps
from pathlib import Path
from typing import Any

import pytest

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import CheckpointError
from tonnage.checkpoint.shape import parse_config
from tonnage.fit.context import (
    context_limit,
    default_context,
    override_context,
    tell_too_long,
)
from tonnage.fit.model import EngineOptions

ROOT = Path(__file__).parents[4]
CATALOG = load_catalog()

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "num_hidden_layers": 8,
    "vocab_size": 32000,
}

CONTEXT = {
    "max_position_embeddings",
    "max_seq_len",
    "model_max_length",
    "original_max_position_embeddings",
    "rope_parameters",
    "rope_scaling",
}

YARN = {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
LONG = {"type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}

LENGTHS: list[tuple[str, dict[str, Any], str, int]] = [
    ("a plain length", {"max_position_embeddings": 8192}, "0.32.0", 8192),
    ("the smallest of several names",
     {"max_position_embeddings": 8192, "max_seq_len": 4096}, "0.32.0", 4096),
    ("Cohere's name takes precedence over the others",
     {"max_position_embeddings": 8192, "model_max_length": 131072}, "0.32.0", 131072),
    ("nothing", {"model_type": "acme"}, "0.32.0", 2048),
    ("linear scaling",
     {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": 4.0}},
     "0.32.0", 16384),
    ("dynamic scaling",
     {"max_position_embeddings": 32768, "rope_scaling": {"type": "dynamic", "factor": 2.0}},
     "0.32.0", 65536),
    ("a factor of null is none",
     {"max_position_embeddings": 4096, "rope_scaling": {"type": "linear", "factor": None}},
     "0.32.0", 4096),
    ("one factor of several kinds of layers",
     {"max_position_embeddings": 4096, "rope_parameters": {
         "full_attention": {"rope_type": "linear", "factor": 8.0},
         "sliding_attention": {"rope_type": "default"}}}, "0.32.0", 32768),
    ("the length of Gemma 3 includes scaling",
     {"model_type": "gemma3_text", "max_position_embeddings": 131072,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}}, "0.32.0", 131072),
    ("the length of Llama 3 does, too",
     {"max_position_embeddings": 131072, "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
     "0.32.0", 131072),
    ("the length with YaRN includes scaling since 0.30",
     {"max_position_embeddings": 40960, "rope_scaling": YARN}, "0.30.0", 40960),
    ("YaRN up to 0.29 multiplies the original length",
     {"max_position_embeddings": 40960, "rope_scaling": YARN}, "0.29.0", 131072),
    ("LongRoPE starts with its original length",
     {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "rope_scaling": LONG}, "0.11.1", 4096),
    ("LongRoPE up to 0.11.0 starts with the scaled length",
     {"max_position_embeddings": 131072, "original_max_position_embeddings": 4096,
      "rope_scaling": LONG}, "0.11.0", 131072),
    ("LongRoPE without an original length",
     {"max_position_embeddings": 131072, "rope_scaling": {**LONG, "type": "su"}}, "0.32.0", 131072),
]  # fmt: skip


@pytest.mark.parametrize(("what", "fields", "version", "want"), LENGTHS)
def test_without_a_length_vllm_derives_one(
    what: str, fields: dict[str, Any], version: str, want: int
) -> None:
    shape = parse_config({**LLAMA, **fields})
    assert default_context(shape, CATALOG.release(version)) == want, what


@pytest.mark.parametrize(("what", "fields", "version", "want"), LENGTHS)
def test_overrides_give_the_lengths_of_a_config_that_has_them(
    what: str, fields: dict[str, Any], version: str, want: int
) -> None:
    own = {name: value for name, value in fields.items() if name in CONTEXT}
    plain = parse_config({**LLAMA, **{k: v for k, v in fields.items() if k not in CONTEXT}})
    written, overridden = parse_config({**LLAMA, **fields}), override_context(plain, dumps(own))
    release, options = CATALOG.release(version), EngineOptions(version, 8192)
    assert default_context(overridden, release) == want, what
    assert context_limit(overridden, options, release) == context_limit(written, options, release)


def test_overrides_without_a_length_keep_that_of_the_config() -> None:
    shape = override_context(parse_config({**LLAMA, "max_position_embeddings": 4096}), "{}")
    assert shape.max_position_embeddings == 4096


BUILT: dict[str, int] = json.loads((ROOT / "tests/data/context_lengths.json").read_text())
"""The lengths that vLLM 0.32.0 derives from the configs of the accuracy records."""


def test_published_models_have_the_lengths_that_vllm_derives() -> None:
    lines = (ROOT / "accuracy/records/models.jsonl").read_text().splitlines()
    configs = {record["model"]: record["config"] for record in map(json.loads, lines)}
    release = CATALOG.release("0.32.0")
    got = {name: default_context(parse_config(configs[name]), release) for name in BUILT}
    assert got == BUILT


def limit(fields: dict[str, Any], version: str = "0.32.0", *stated: str) -> int | None:
    options = EngineOptions(version, 8192, stated=frozenset(stated))
    return context_limit(parse_config({**LLAMA, **fields}), options, CATALOG.release(version))


def test_the_limit_of_max_model_len() -> None:
    stretched = {
        "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096,
        "rope_scaling": LONG,
    }
    assert limit(stretched) == 131072
    assert limit({"max_position_embeddings": 40960, "rope_scaling": YARN}) == 40960
    assert limit({"max_position_embeddings": 40960, "rope_scaling": YARN}, "0.10.0") == 131072
    assert limit({"model_type": "acme"}) is None
    assert (
        limit({"max_position_embeddings": 4096}, "0.32.0", "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1")
        is None
    )


def test_the_message_for_a_longer_request_has_both_lengths() -> None:
    shape, release = (
        parse_config({**LLAMA, "max_position_embeddings": 4096}),
        CATALOG.release("0.32.0"),
    )
    message = tell_too_long(shape, EngineOptions("0.32.0", 4097), release)
    assert message is not None
    assert message.startswith("4097 tokens is more than the 4096 tokens")
    assert tell_too_long(shape, EngineOptions("0.32.0", 4096), release) is None


def test_an_enormous_length_is_refused() -> None:
    scaling = {"type": "linear", "factor": 1e6}
    with pytest.raises(CheckpointError, match="rope_scaling stretches the context"):
        parse_config({**LLAMA, "max_position_embeddings": 8192, "rope_scaling": scaling})
