"""docs/spread.md says what endpoints by length cost, as `tonnage plan` has it; `make golden` puts
it there."""

import json
import os
import re
from copy import deepcopy
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml

from e2e.nodes.descriptions import render_nodes
from tonnage.cli.main import main
from tonnage.kube.protocol import Object

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spread.md"
SAMPLE = ROOT / "manifests" / "samples" / "llama-8b-long-context.yaml"
FLEET = ROOT / "e2e" / "fleets" / "mixed.yaml"

TABLE = re.compile(
    r"(?<=\| \| short requests \| long requests \| \$/h \|\n\|---\|---\|---\|---\|\n)(\|.*\n)*"
)


def apart() -> Object:
    manifest: Object = yaml.safe_load(SAMPLE.read_text("utf-8"))
    return manifest


def together() -> Object:
    """The same load by one endpoint: a typical request is the mean of both kinds."""
    body = apart()
    workload = body["spec"]["workload"]
    long = workload.pop("longContext")
    count = workload["concurrency"]
    for field in ("inputTokens", "outputTokens"):
        short = workload[field] * (count - long["concurrency"])
        workload[field] = round((short + long[field] * long["concurrency"]) / count)
    return body


def without_targets(body: Object) -> Object:
    body = deepcopy(body)
    workload = body["spec"]["workload"]
    for part in (workload, workload.get("longContext", {})):
        part.pop("latencyTargets", None)
    return body


CASES = {
    "with its targets, by two endpoints": apart(),
    "the same by one": together(),
    "without targets, by two endpoints": without_targets(apart()),
    "without targets, by one": without_targets(together()),
}


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    path = tmp_path / "nodes.yaml"
    items = render_nodes(yaml.safe_load(FLEET.read_text("utf-8")))
    path.write_text(yaml.safe_dump({"kind": "List", "apiVersion": "v1", "items": items}), "utf-8")
    return path


def plan(body: Object, nodes: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The placement of each endpoint."""
    wanted = nodes.with_name("wanted.yaml")
    wanted.write_text(yaml.safe_dump(body), "utf-8")
    assert main(["plan", "-f", str(wanted), "--nodes", str(nodes), "-o", "json"]) == 0
    items = json.loads(capsys.readouterr().out)["items"]
    return [placement for item in items for placement in item["status"]["placements"]]


def row(name: str, placements: list[dict[str, Any]]) -> str:
    cells = [
        f"{placement['replicas'] * placement['gpusPerReplica']} {placement['accelerator']}"
        for placement in placements
    ]
    short, long = cells if len(cells) > 1 else (cells[0], "the same")
    cost = sum(Decimal(placement["costPerHour"]) for placement in placements)
    return f"| {name} | {short} | {long} | {cost} |\n"


def test_the_page_shows_the_cost_of_one_and_of_two_endpoints(
    nodes: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [row(name, plan(body, nodes, capsys)) for name, body in CASES.items()]
    page = PAGE.read_text("utf-8")
    want = TABLE.sub(lambda _: "".join(rows), page)
    assert all(line in want for line in rows)
    if os.environ.get("TONNAGE_GOLDEN") == "write":
        PAGE.write_text(want, "utf-8")
        return
    assert page == want, "docs/spread.md differs: `make golden`, then read the diff"
