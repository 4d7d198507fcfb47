"""Time and memory of reading hostile texts, with limits that the kernel enforces."""

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

from tests.support.foreign.bounded_readers import (
    LARGEST,
    MIB,
    MOST_BYTES,
    MOST_BYTES_ALONE,
    MOST_SECONDS_ALONE,
    Outcome,
)
from tests.support.foreign.broken_readers import BROKEN
from tests.support.foreign.readers import READERS
from tonnage.controller.hub_cache import WORKERS

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="RLIMIT_DATA bounds mappings on Linux only"
)


def outcomes_of(module: str) -> list[Outcome]:
    """What a module tells that tries readers in a process of its own."""
    command = [sys.executable, "-m", f"tests.support.foreign.{module}"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return [Outcome(**json.loads(line)) for line in output.splitlines()]


@pytest.fixture(scope="module")
def outcomes() -> Mapping[str, list[Outcome]]:
    """By reader."""
    by_reader: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes_of("bounded_readers"):
        by_reader[outcome.reader].append(outcome)
    return by_reader


@pytest.fixture(scope="module")
def broken() -> Mapping[str, Outcome]:
    """By what each of them does wrong."""
    return {outcome.reader: outcome for outcome in outcomes_of("broken_readers")}


@pytest.mark.parametrize("name", READERS)
def test_hostile_texts_take_bounded_memory_and_time(
    name: str, outcomes: Mapping[str, list[Outcome]]
) -> None:
    assert len(outcomes[name]) > 20
    assert [outcome for outcome in outcomes[name] if outcome.fault] == []


@pytest.mark.parametrize("fault", BROKEN)
def test_a_reader_without_limits_is_detected(fault: str, broken: Mapping[str, Outcome]) -> None:
    assert broken[fault].fault == fault


def test_concurrently_read_texts_take_at_most_half_of_the_memory_limit() -> None:
    documents = yaml.safe_load_all(Path("manifests/base/deployment.yaml").read_text("utf-8"))
    (deployment,) = (document for document in documents if document["kind"] == "Deployment")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (gib,) = re.findall(r"^(\d+)Gi$", container["resources"]["limits"]["memory"])
    assert int(gib) * 1024 * MIB == 2 * WORKERS * MOST_BYTES


def test_sizes_and_limits_name_existing_readers() -> None:
    assert {*LARGEST, *MOST_BYTES_ALONE, *MOST_SECONDS_ALONE} <= READERS.keys()
