"""Any foreign input gives a result or an error of this project, in bounded time."""

import ast
import asyncio
import gc
import json
import time
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.foreign.hostile_values import VALUES, WHOLE, places
from tests.support.foreign.readers import PAGE, READERS, Reader
from tonnage.api.model import HuggingFaceSource, ModelSource, SecretKeyRef
from tonnage.checkpoint.lookup import ModelPending
from tonnage.reconcile.observation.model_source import read_model
from tonnage.telemetry.prometheus import refusal

SOURCES = Path("operator/tonnage")
LONGEST_MESSAGE = 2000
MOST_TIMES = 1000
"""Times as long as it takes to quote the text; more than linear time is far more for these
texts."""
LEAST_SECONDS = 1e-3
"""Quoting a short text takes too little time to compare with."""

PARSING = frozenset(
    {
        "json.loads",
        "json.load",
        "read_json_object",
        "msgspec.json.decode",
        "msgspec.json.Decoder",
        "from_json",
        "yaml.load",
        "yaml.load_all",
        "yaml.safe_load",
    }
    | {"text_string_to_metric_families", "int.from_bytes", "datetime.fromisoformat", "ip_address"}
    | {"base64.b64decode", "shlex.split"}
)
ELSEWHERE = {
    "catalog/data_files.py": "the catalogue's own files",
    "checkpoint/hub/session.py": "addresses: integration/hub/test_checkpoint_hub_redirects.py",
    "checkpoint/volume/read.py": "runs in a Job of the user: unit/checkpoint/volume/test_job.py",
    "cli/fit/flags.py": "arguments that a person types: unit/cli/commands/test_fit.py",
    "cli/plan/diff.py": "keys of managedFields, which the API server parses before it stores them",
    "informers/stores.py": "what the same process has packed",
    "reconcile/rollout/placements.py": "an annotation that was rendered in the same breath",
    "reconcile/observation/child_pods.py": (
        "times, as in pods/reports.py; addresses: unit/reconcile/observation/test_children.py"
    ),
    "reconcile/observation/findings.py": "times that the API server wrote",
    "reconcile/observation/pods/reports.py": (
        "times of pods, which the API server parses before it stores them"
    ),
    "reconcile/observation/model_source.py": (
        "a Secret's value: test_an_invalid_secret_is_read_or_refused"
    ),
    "workloads/deployment.py": "the time of a condition, which the API server parses before",
    "telemetry/prometheus.py": "an answer: test_an_error_of_prometheus_is_read_or_refused",
}
"""Modules that parse, and are tried by other tests, or read nothing that a stranger wrote."""


@contextmanager
def linear_time(text: bytes) -> Iterator[None]:
    """Compare with a step in linear time on the same machine in the same moment. To collect the
    garbage of earlier tests belongs to neither."""
    gc.disable()
    try:
        started = time.process_time()
        yield
        seconds = time.process_time() - started
        json.dumps(text.decode("latin-1"))
        quoting = time.process_time() - started - seconds
    finally:
        gc.enable()
    assert seconds < MOST_TIMES * max(quoting, LEAST_SECONDS)


def try_reader(reader: Reader, text: bytes) -> None:
    """Whatever is not an error of ours is raised."""
    message = "none"
    with linear_time(text):
        try:
            reader.read(text)
        except reader.errors as error:
            message = str(error)
    assert 0 < len(message.encode()) < LONGEST_MESSAGE, "no message that can be stored"


@pytest.mark.parametrize("name", READERS)
def test_each_reader_reads_its_valid_example(name: str) -> None:
    for sample in READERS[name].samples:
        READERS[name].read(json.dumps(sample).encode())


@pytest.mark.parametrize("name", READERS)
def test_any_value_at_any_path_is_read_or_refused(name: str) -> None:
    for sample in READERS[name].samples:
        for place in places(sample):
            for value in VALUES.values():
                try_reader(READERS[name], (place % value).encode())


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("whole", WHOLE)
def test_any_other_document_is_read_or_refused(name: str, whole: str) -> None:
    try_reader(READERS[name], WHOLE[whole])


@pytest.mark.parametrize("name", READERS)
def test_any_bytes_are_read_or_refused(name: str) -> None:
    @given(st.binary(max_size=300) | st.text(max_size=100).map(lambda text: text.encode()))
    def any_bytes(text: bytes) -> None:
        try_reader(READERS[name], text)

    any_bytes()


@given(st.integers(0, len(PAGE) - 1), st.binary(min_size=1, max_size=3))
def test_a_metrics_page_with_inserted_bytes_is_read_or_refused(where: int, inserted: bytes) -> None:
    try_reader(
        READERS["a page of metrics"], PAGE[:where] + inserted + PAGE[where + len(inserted) :]
    )


class Secret:
    """The one object of a cluster."""

    def __init__(self, text: object) -> None:
        self._text = text

    async def get(self, *_: object) -> dict[str, Any]:
        return {"data": {"token": self._text}}


@given(st.text(max_size=50) | st.binary(max_size=50).map(lambda raw: b64encode(raw).decode()))
def test_an_invalid_secret_is_read_or_refused(text: str) -> None:
    def ask(_: HuggingFaceSource, token: str | None) -> ModelPending:
        assert isinstance(token, str)
        return ModelPending("asked")

    source = HuggingFaceSource(repo="a/b", token_secret_ref=SecretKeyRef(name="hf"))
    model = ModelSource(hugging_face=source)
    asyncio.run(read_model(Secret(text), ask, "chat", model))


@pytest.mark.parametrize("whole", WHOLE)
def test_an_error_of_prometheus_is_read_or_refused(whole: str) -> None:
    with linear_time(WHOLE[whole]):
        refusal(503, WHOLE[whole])


def calls_of(path: Path) -> set[str]:
    tree = ast.parse(path.read_text("utf-8"))
    return {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}


def test_every_module_that_parses_has_a_reader_in_a_test() -> None:
    parsing = {
        str(path.relative_to(SOURCES))
        for path in SOURCES.rglob("*.py")
        if not PARSING.isdisjoint(calls_of(path))
    }
    listed = {module for reader in READERS.values() for module in reader.of}
    assert parsing <= listed | ELSEWHERE.keys(), "add them to tests/support/foreign/readers.py"
    assert ELSEWHERE.keys() <= parsing
    assert all((SOURCES / module).exists() for module in listed)
