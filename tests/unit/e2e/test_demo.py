"""Where `make demo` says that its samples belong is where they are placed."""

import json
from pathlib import Path

import pytest

from e2e.demo import SAMPLES, Sample
from e2e.nodes.descriptions import render_nodes
from e2e.nodes.fleet import load_fleet
from tonnage.cli.main import main


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.file)
def test_each_sample_of_the_demo_has_the_expected_pool(
    sample: Sample, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = tmp_path / "nodes.json"
    listed = {"apiVersion": "v1", "kind": "NodeList", "items": render_nodes(load_fleet("mixed"))}
    nodes.write_text(json.dumps(listed))
    code = main(["plan", "-f", str(sample.path), "--nodes", str(nodes), "-o", "json"])
    (planned,) = json.loads(capsys.readouterr().out)["items"]
    placements = planned["status"].get("placements") or [{}]
    assert placements[0].get("accelerator") == sample.accelerator
    assert code == (3 if sample.accelerator is None else 0)
