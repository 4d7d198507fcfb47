"""docs/pods.md shows the starts that `tonnage explain` prints; `make golden` puts them there."""

import asyncio
import os
import re
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

import pytest

from tests.support.api_server.live_fake import connect_to
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.load.startup_logs import REQUESTED, bar, log_of, step
from tonnage.cli.commands import explain
from tonnage.cli.main import main
from tonnage.kube.protocol import Object

PAGE = Path(__file__).parents[2] / "docs" / "pods.md"
COMMAND = "$ kubectl tonnage explain llama-70b -n chat | grep -A 3 START\n"
SHOWN = re.compile(rf"(?<={re.escape(COMMAND)})(?:(?!```)[^\n]*\n)*")

SANDBOX = ("PodReadyToStartContainers", "Initialized")


class Starting(Cluster):
    """Three replicas: one loads, one downloads, one pulls its image."""

    def __init__(self) -> None:
        super().__init__(MI300X)
        self.behaviours["llama-70b"] = self._behave
        spec = spec_of("llama-3.3-70b", workload={"maxModelLen": 32768}, replicas=3)
        self.apply("llama-70b", spec)
        asyncio.run(self.settle())
        loads, downloads, _ = self.pods("llama-70b")
        self._write(loads, REQUESTED, bar(12))
        self.clock.advance(290)
        self._write(downloads, REQUESTED)
        self.clock.advance(100)

    def _behave(self, pod: Object) -> Object:
        if pod["metadata"]["name"].endswith("2"):
            return step("ContainerCreating", true=SANDBOX)(pod)
        return step(true=SANDBOX)(pod)

    def _write(self, pod: Object, *lines: str) -> None:
        log = log_of(*lines, start=self.clock.now() + timedelta(seconds=60))
        self.api.set_log("chat", pod["metadata"]["name"], "vllm", log)


def test_the_page_shows_what_explain_prints(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster = Starting()

    class Now(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return cluster.clock.now()

    monkeypatch.setattr(explain, "datetime", Now)
    connect_to(monkeypatch, cluster.api, explain)
    assert main(["explain", "llama-70b", "-n", "chat"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    first = next(number for number, line in enumerate(lines) if line.startswith("  START"))
    want = "".join(f"{line}\n" for line in lines[first : first + 4])
    page = PAGE.read_text(encoding="utf-8")
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        PAGE.write_text(SHOWN.sub(want, page, count=1), encoding="utf-8")
        return
    match = SHOWN.search(page)
    assert match is not None
    assert match[0] == want, "docs/pods.md differs: `make golden`, then read the diff"
