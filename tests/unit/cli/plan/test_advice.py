"""`tonnage plan` says which change of a spec makes its model fit."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fleets.gpu_nodes import L40S, amd_node, nvidia_node
from tests.support.in_memory.cluster import spec_of
from tests.support.pages.command_line import Run, runner
from tonnage.kube.protocol import Object

L40S_NODES = [nvidia_node("l40s-a", L40S, gpus=1), nvidia_node("l40s-b", L40S, gpus=1)]
TOO_LONG = {"maxModelLen": 131072, "concurrency": 250}


@pytest.fixture
def plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    def run(spec: Object, nodes: list[Object], *more: str) -> tuple[int, str, str]:
        manifest, fleet = tmp_path / "infd.yaml", tmp_path / "nodes.yaml"
        body = {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": "llama"},
            "spec": spec,
        }
        manifest.write_text(yaml.safe_dump(body))
        fleet.write_text(yaml.safe_dump_all(nodes))
        arguments = ("-f", str(manifest), "--nodes", str(fleet), *more)
        return runner(capsys, "plan")(*arguments)

    return run


def advice(out: str) -> list[str]:
    lines = out.splitlines()
    return [line.strip() for line in lines if "next step:" in line or "no setting" in line]


def test_the_smallest_change_is_named_by_its_field_and_makes_the_model_fit(plan: Run) -> None:
    spec = spec_of(workload=TOO_LONG)
    code, out, _ = plan(spec, L40S_NODES)
    assert code == 3
    (line,) = advice(out)
    assert line.startswith("next step: spec.kvCacheDtype: fp8 (fits on nvidia-l40s with TP 1; the")
    code, out, _ = plan({**spec, "kvCacheDtype": "fp8"}, L40S_NODES)
    assert (code, advice(out)) == (0, [])


@pytest.mark.parametrize(
    ("pool", "count"),
    [({}, 1), ({"accelerator": "h100-sxm-80gb", "maxNodes": 1}, 0)],
)
def test_a_declared_pool_without_nodes_hides_it_only_if_nodes_to_come_are_enough(
    plan: Run, pool: dict[str, Any], count: int
) -> None:
    declared = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "empty"},
        "spec": {"nodeSelector": {"team": "none"}, **pool},
    }
    _, out, _ = plan(spec_of(workload=TOO_LONG), [*L40S_NODES, declared])
    assert len(advice(out)) == count


def test_every_change_of_the_json_makes_the_model_fit(plan: Run) -> None:
    spec = spec_of(workload={**TOO_LONG, "concurrency": 205})
    (planned,) = json.loads(plan(spec, L40S_NODES, "-o", "json")[1])["items"]
    ((pool),) = planned["nextSteps"]
    assert pool["pool"] == "nvidia-l40s"
    assert len(pool["changes"]) > 1
    for change in pool["changes"]:
        changed = json.loads(json.dumps(spec))
        for path, value in change["fields"].items():
            *parents, last = path.removeprefix("spec.").split(".")
            part = changed
            for parent in parents:
                part = part.setdefault(parent, {})
            part[last] = value
        assert plan(changed, L40S_NODES)[0] == 0, change["fields"]


def test_a_setting_that_the_user_chose_is_changed_last(plan: Run) -> None:
    spec = spec_of(workload={**TOO_LONG, "concurrency": 205})
    (line,) = advice(plan(spec, L40S_NODES)[1])
    assert "spec.kvCacheDtype: fp8" in line
    (line,) = advice(plan({**spec, "kvCacheDtype": "bfloat16"}, L40S_NODES)[1])
    assert "spec.quantization: fp8" in line


def test_pools_on_which_nothing_helps_share_a_line(plan: Run) -> None:
    small = [nvidia_node("a", L40S, gpus=1), nvidia_node("b", {**L40S, "x": "1"}, gpus=1)]
    code, out, _ = plan(spec_of("llama-3.1-405b-fp8", workload={"maxModelLen": 8192}), small)
    assert code == 3
    assert advice(out) == [
        "no setting makes it fit on nvidia-l40s: take devices with more memory, or a checkpoint "
        "with smaller weights"
    ]


def test_what_fits_needs_no_advice(plan: Run) -> None:
    spec = spec_of(workload=TOO_LONG)
    nodes = [*L40S_NODES, amd_node("a")]
    assert advice(plan(spec, nodes)[1]) == []
    full = {**spec, "replicas": 9}
    code, out, _ = plan(full, nodes)
    assert (code, advice(out)) == (3, []), "GPUs are lacking, not memory"
    (planned,) = json.loads(plan(full, nodes, "-o", "json")[1])["items"]
    assert "nextSteps" not in planned


def test_the_reason_of_a_pool_does_not_repeat_condition_placed(plan: Run) -> None:
    nodes = [*L40S_NODES, amd_node("a")]
    code, out, _ = plan(spec_of(), nodes)
    assert code == 0
    (placed,) = (line for line in out.splitlines() if "Placed=True" in line)
    message = placed.partition("nvidia-l40s: ")[2] or placed.partition("amd-mi300x: ")[2]
    assert message
    assert out.count(message) == 1
    chosen = next(line for line in out.splitlines() if " Chosen " in line)
    assert chosen.rstrip().endswith("LowestCost")
    other = next(line for line in out.splitlines() if " Feasible " in line)
    assert "CostsMore: fits with" in other, "a message of its own stays"
