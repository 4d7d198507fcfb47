"""The list of models of a pod: which entries are adapters, and what is no list."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tonnage.telemetry.served_adapters import ServedAdapters, read_models


def models(**adapters: str) -> dict[str, Any]:
    """What vLLM 0.32.0 answers, with the fields that matter and some of the others."""
    base = {"id": "llama", "object": "model", "root": "acme/llama", "parent": None}
    listed = [{"id": name, "root": root, "parent": "llama"} for name, root in adapters.items()]
    return {"object": "list", "data": [base, *listed]}


def test_the_adapters_are_the_entries_with_a_parent() -> None:
    body = json.dumps(models(sql="/adapters/sql")).encode()
    assert read_models(body, "llama") == ServedAdapters({"sql": "/adapters/sql"})


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'{"data": [{"id": 1}]}',
        b'{"data": ' + b"[" * 100_000,
        json.dumps({"data": [{"id": "llama"}] * 5000}).encode(),
        json.dumps({"data": [{"id": "llama"}, {"id": "x" * 600, "parent": "llama"}]}).encode(),
        json.dumps(models()).encode().replace(b"llama", b"mixtral"),
    ],
)
def test_any_other_answer_has_no_adapters(body: bytes) -> None:
    served = read_models(body, "llama")
    assert served.adapters is None
    assert served.problem


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer(body: bytes) -> None:
    assert read_models(body, "llama").adapters is None
