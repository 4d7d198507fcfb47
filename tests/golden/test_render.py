"""What Tonnage makes of a spec and a pool: `<case>.input.yaml` becomes `<case>.output.yaml`."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.golden.render.inputs import OWNER, make_checkpoint, make_deployment, make_option, pod_of
from tonnage.api.parse import parse_spec
from tonnage.catalog.load import load_catalog
from tonnage.engines.inputs import RenderSettings, SurgeMode
from tonnage.engines.replica import Replica
from tonnage.placement.adjustments import EngineAdjustments
from tonnage.workloads.claim_template import render_claim_template
from tonnage.workloads.pod.template import check_template
from tonnage.workloads.pod.weights import program
from tonnage.workloads.prefetch_job import render_prefetch_job
from tonnage.workloads.service import render_service
from tonnage.workloads.weights_job import render_weights_job

FOLDER = Path(__file__).parent / "render"
PROGRAMS = ("download", "node_disk", "prefetch")
CASES = sorted(path.name.removesuffix(".input.yaml") for path in FOLDER.glob("*.input.yaml"))


@pytest.mark.parametrize("case", CASES)
def test_spec_and_pool_become_workload_and_service(
    case: str, check_golden: Callable[[Path, list[dict[str, Any]]], None]
) -> None:
    given = yaml.safe_load((FOLDER / f"{case}.input.yaml").read_text(encoding="utf-8"))
    spec, pool = parse_spec(given["spec"]), given["pool"]
    check_template(spec)
    option = make_option(
        pool["accelerator"],
        tensor=given.get("tensorParallelSize", 1),
        pipeline=given.get("pipelineParallelSize", 1),
        data=given.get("dataParallelSize", 1),
        nodes=given.get("nodesPerReplica", 1),
        pool=pool["name"],
        declared=pool.get("spec"),
        node_selector={key: tuple(values) for key, values in pool["nodeSelector"].items()},
        adjustments=EngineAdjustments(**given.get("adjustments", {})),
        driver=pool.get("driver"),
    )
    checkpoint = replace(make_checkpoint(given.get("weightsBytes")), revision=given.get("commit"))
    settings = RenderSettings(given.get("hfEndpoint"))
    deployment = make_deployment(
        spec,
        option,
        checkpoint=checkpoint,
        replicas=given["replicas"],
        surge=SurgeMode(given["surge"]),
        settings=settings,
    )
    claim_template = render_claim_template(OWNER, option)
    claims = [] if claim_template is None else [claim_template]
    replica = Replica(OWNER, spec, checkpoint, option, load_catalog(), settings)
    jobs = [render_weights_job(replica)] if spec.model.cache_claim else []
    if spec.model.prefetch_nodes:
        jobs.append(render_prefetch_job(replica, "gpu-7"))
    for body in (deployment, *jobs):
        _shorten_programs(body)
    children = [*claims, deployment, render_service(OWNER), *jobs]
    check_golden(FOLDER / f"{case}.output.yaml", children)


def _shorten_programs(body: dict[str, Any]) -> None:
    """Replace the texts of programs in the pods of a Deployment or a Job by their paths."""
    texts = {program(name): f"# tonnage/checkpoint/hub/{name}.py" for name in PROGRAMS}
    pod = pod_of(body) if "template" in body["spec"] else {"containers": []}
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        if "command" in container:
            container["command"] = [texts.get(word, word) for word in container["command"]]


def test_there_are_cases() -> None:
    assert len(CASES) >= 5
