"""What Tonnage makes of a spec and a pool: `<case>.input.yaml` becomes `<case>.output.yaml`."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden.render.inputs import OWNER, make_checkpoint, make_deployment, make_option
from tonnage.api.parse import parse_spec
from tonnage.engines.inputs import RenderSettings, SurgeMode
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.workloads.pod.template import check_template
from tonnage.workloads.service import render_service

FOLDER = Path(__file__).parent / "render"
CASES = sorted(path.name.removesuffix(".input.yaml") for path in FOLDER.glob("*.input.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_spec_and_pool_become_workload_and_service(
    case: str, check_golden: Callable[[Path, list[dict[str, Any]]], None]
) -> None:
    given = yaml.safe_load((FOLDER / f"{case}.input.yaml").read_text(encoding="utf-8"))
    spec, pool = parse_spec(given["spec"]), given["pool"]
    check_template(spec)
    deployment = make_deployment(
        spec,
        make_option(
            pool["accelerator"],
            tensor=given.get("tensorParallelSize", 1),
            pipeline=given.get("pipelineParallelSize", 1),
            nodes=given.get("nodesPerReplica", 1),
            pool=pool["name"],
            declared=pool.get("spec"),
            node_selector={key: tuple(values) for key, values in pool["nodeSelector"].items()},
            adjustments=EngineAdjustments(**given.get("adjustments", {})),
        ),
        checkpoint=make_checkpoint(given.get("weightsBytes")),
        replicas=given["replicas"],
        surge=SurgeMode(given["surge"]),
        settings=RenderSettings(given.get("hfEndpoint")),
    )
    check_golden(FOLDER / f"{case}.output.yaml", [deployment, render_service(OWNER)])


def test_there_are_cases() -> None:
    assert len(CASES) >= 5
