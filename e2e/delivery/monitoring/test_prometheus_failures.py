"""While Prometheus fails, replicas stay and measured values stay in the status."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias
from urllib.parse import parse_qs, urlsplit

import pytest

from e2e.doubles.page_server import Page, PageServer
from e2e.harness.admin import SLOW, Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.stack import Stack
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from e2e.models import inference

MEASURED_TOKENS = 123_456
PODS = re.compile(r'pod=~"([^"]+)"')
TEN_MEGABYTES = b'{"status": "success", "data": {"result": [' + b" " * 10_000_000


class Scraped(PageServer):
    """A double of a Prometheus that scraped every pod; a test can make it fail."""

    def __init__(self) -> None:
        super().__init__()
        self.trouble: Trouble | None = None
        self.over = threading.Event()

    def answer(self, path: str) -> Page:
        if self.trouble is not None:
            return self.trouble(self)
        return Page(measured(parse_qs(urlsplit(path).query)["query"][0]), "application/json")

    def hang(self) -> Page:
        """Say nothing until the test is over."""
        self.over.wait()
        return Page(b"")


Trouble: TypeAlias = Callable[[Scraped], Page]


def measured(query: str) -> bytes:
    """The KV cache of each pod that the query names, as sampled a second ago."""
    now = time.time()
    (pods,) = PODS.findall(query)
    series = [
        {
            "metric": {"pod": pod, "engine": "0", "kv_cache_size_tokens": str(MEASURED_TOKENS)},
            "value": [now, str(now - 1)],
        }
        for pod in pods.split("|")
    ]
    return json.dumps({"status": "success", "data": {"result": series}}).encode()


@pytest.fixture
def scraped() -> Iterator[Scraped]:
    with Scraped() as server:
        yield server
        server.over.set()


@pytest.fixture
def operator(
    control_plane: Stack, installed: Admin, scraped: Scraped, tmp_path: Path
) -> Iterator[OperatorProcess]:
    environment = {
        "TONNAGE_PROMETHEUS_URL": scraped.url,
        "TONNAGE_PROMETHEUS_DEADLINE_SECONDS": "5",  # so long a busy machine takes for no answer
    }
    process = OperatorProcess(control_plane, tmp_path / "operator", environment=environment)
    process.start()
    yield process
    process.close()


TROUBLES: dict[str, Trouble] = {
    "timeout": Scraped.hang,
    "too_large": lambda _: Page(TEN_MEGABYTES),
    "not_understood": lambda _: Page(b"<html>Please log in</html>", "text/html"),
    "http_error": lambda _: Page(b"starting", status=503),
}


def known_tokens(user: User, name: str) -> int | None:
    (placement,) = user.status(name)["placements"]
    tokens: int | None = placement.get("measuredKvCacheTokens")
    return tokens


@pytest.mark.parametrize("outcome", TROUBLES)
def test_a_failing_prometheus_changes_nothing(
    operator: OperatorProcess,
    scraped: Scraped,
    fleet: UseFleet,
    user: User,
    installed: Admin,
    outcome: str,
) -> None:
    fleet("tiny")
    user.apply(inference("measured", "llama-3.1-8b"))
    user.wait_ready("measured", timeout=SLOW)
    user.forget("measured")  # its labels change from here on
    installed.until("its cache to be known", lambda: known_tokens(user, "measured"), timeout=SLOW)
    user.await_quiet()
    pods, status = user.pods("measured"), user.status("measured")
    scraped.trouble = TROUBLES[outcome]
    mark = installed.audit_mark()
    counted = f'tonnage_prometheus_questions_total{{outcome="{outcome}"}}'
    turns = 0

    def asked_in_vain() -> bool:
        nonlocal turns
        turns += 1
        change = {"metadata": {"labels": {"turn": str(turns)}}}
        installed.patch("infd", "measured", change)
        return counted in operator.metrics()

    installed.until("Prometheus to be asked in vain", asked_in_vain, timeout=SLOW)
    user.await_quiet()
    own = f"/namespaces/{user.namespace}/"  # its pools are not the model's
    assert [write for write in user.operator_writes(mark) if own in write] == []
    assert (user.pods("measured"), user.status("measured")) == (pods, status)
    assert known_tokens(user, "measured") == MEASURED_TOKENS
    assert operator.readiness()[0] == 200
    outcomes = [line["outcome"] for line in operator.log_lines() if "outcome" in line]
    assert outcomes == ([outcome] if outcome != "too_large" else [])
