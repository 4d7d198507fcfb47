"""docs/approval.md shows what the commands print; `make golden` puts it there."""

import asyncio
import os
from pathlib import Path

import pytest

from tests.golden.test_cluster_pages import DOCS, FLEET, LARGE, Noon, infd, render, write
from tests.support.api_server.live_editor import edit
from tests.support.api_server.live_fake import connect_to
from tests.support.in_memory.cluster import Cluster
from tests.support.in_memory.dumps import dump
from tonnage.cli.commands import explain, plan, restart
from tonnage.kube.kinds import NODES

SPEC = {**LARGE, "approval": "Manual"}


def test_the_page_shows_what_the_commands_print(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (explain, plan, restart):
        monkeypatch.setattr(module, "datetime", Noon)
    cluster = Cluster(*FLEET)
    cluster.apply("llama-70b", SPEC)
    asyncio.run(cluster.settle())
    connect_to(monkeypatch, cluster.api, explain, plan)
    edit(monkeypatch, cluster.api, after=cluster.settle)
    dump(Cluster(*FLEET).api, Path("nodes.yaml"), [NODES])
    write(Path("llama-70b.yaml"), [infd("llama-70b", SPEC)])
    page = (DOCS / "approval.md").read_text(encoding="utf-8")
    want = render(page, capsys)
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        (DOCS / "approval.md").write_text(want, encoding="utf-8")
        return
    assert page == want, "docs/approval.md differs: `make golden`, then read the diff"
