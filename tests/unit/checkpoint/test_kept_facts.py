"""The facts of a model as a text: read back alike, and refused where anybody changed them."""

import base64
import json
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.engines.shapes import CONFIGS
from tests.support.foreign.readers import KEPT_FACTS
from tonnage.api.packed import MAX_PACKED_CHARS
from tonnage.checkpoint.kept_facts import decode_facts, encode_facts
from tonnage.checkpoint.model import Checkpoint
from tonnage.checkpoint.safetensors.formats import make_checkpoint
from tonnage.checkpoint.shape import parse_config_text
from tonnage.checkpoint.tensor_table import TensorTable, tabulate

REPO, REVISION, COMMIT = "acme/llama", "main", "0" * 40
CONFIG = (CONFIGS / "llama-3.1-8b.json").read_bytes()
TABLE = tabulate((f"model.layers.{layer}.mlp.weight", "BF16", (8, 8)) for layer in range(32))


def checkpoint(tensors: TensorTable | None = TABLE, config: bytes = CONFIG) -> Checkpoint:
    size = None if tensors else 123
    return make_checkpoint(parse_config_text(config), tensors, None, size, COMMIT)


def encoded(facts: object) -> str:
    return base64.b64encode(zlib.compress(json.dumps(facts).encode())).decode()


@pytest.mark.parametrize("tensors", [TABLE, None], ids=["tensors", "sizes only"])
def test_facts_are_read_back_as_they_were(tensors: TensorTable | None) -> None:
    kept = encode_facts(REPO, REVISION, CONFIG, checkpoint(tensors))
    assert kept is not None
    assert len(kept) < 4096
    read = decode_facts(kept, REPO, REVISION)
    assert read == checkpoint(tensors)
    assert read.kept_facts == kept, "the Service keeps them"


@pytest.mark.parametrize(("repo", "revision"), [("acme/other", REVISION), (REPO, "v2")])
def test_facts_of_another_model_are_not_used(repo: str, revision: str) -> None:
    kept = encode_facts(REPO, REVISION, CONFIG, checkpoint())
    assert kept is not None
    assert decode_facts(kept, repo, revision) is None


def test_facts_that_are_too_large_are_not_kept() -> None:
    noise = "".join(f"{number * 7919 % 99991:05}" for number in range(60_000))
    config = json.dumps({**json.loads(CONFIG), "notes": noise}).encode()
    assert encode_facts(REPO, REVISION, config, checkpoint(config=config)) is None


Change = Callable[[dict[str, Any]], object]

WRONG: dict[str, Change] = {
    "no object": lambda facts: [facts],
    "a field is missing": lambda facts: {key: facts[key] for key in facts if key != "tensors"},
    "a field more": lambda facts: {**facts, "more": 1},
    "the config is no text": lambda facts: {**facts, "config": {}},
    "the config is no model": lambda facts: {**facts, "config": "{}"},
    "the config is no JSON": lambda facts: {**facts, "config": "{"},
    "the table has other rows": lambda facts: {**facts, "tensors": "[1]"},
    "the table is no text": lambda facts: {**facts, "tensors": []},
    "the commit is no text": lambda facts: {**facts, "commit": None},
    "the size is a text": lambda facts: {**facts, "weightsBytes": "7"},
    "the size is negative": lambda facts: {**facts, "weightsBytes": -1},
    "the size is no number": lambda facts: {**facts, "weightsBytes": True},
    "the size is beyond all models": lambda facts: {**facts, "weightsBytes": 2**60},
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_facts_with_another_content_are_refused(change: Change) -> None:
    assert decode_facts(encoded(dict(KEPT_FACTS)), REPO, REVISION) is not None
    assert decode_facts(encoded(change(dict(KEPT_FACTS))), REPO, REVISION) is None


VALID = encoded(dict(KEPT_FACTS))
UNREADABLE = {
    "empty": "",
    "no base64": VALID[:-4] + "ü===",
    "no zlib": base64.b64encode(b"facts").decode(),
    "cut off": base64.b64encode(base64.b64decode(VALID)[:-8]).decode(),
    "no JSON": base64.b64encode(zlib.compress(b"{")).decode(),
    "no UTF-8": base64.b64encode(zlib.compress(b"\xff\xfe\xff")).decode(),
    "too deep": base64.b64encode(zlib.compress(b"[" * 100_000)).decode(),
    "much larger than it looks": base64.b64encode(zlib.compress(bytes(2**26))).decode(),
    "too long": " " * (MAX_PACKED_CHARS + 1) + VALID,
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_a_text_that_is_no_facts_is_refused(text: str) -> None:
    assert decode_facts(text, REPO, REVISION) is None
