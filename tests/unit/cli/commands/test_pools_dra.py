"""`tonnage pools` and `tonnage plan` of nodes whose GPUs are in ResourceSlices."""

import json
from pathlib import Path

import pytest

from tests.support.fleets.dra_objects import (
    MI300X,
    NVIDIA_RESOURCE,
    claim,
    device_class,
    dra_node,
    gpu_slice,
    nvidia_device,
    raw_slice,
)
from tests.support.fleets.gpu_nodes import L40S, nvidia_node
from tonnage.cli.main import main

LLAMA = str(Path(__file__).parents[4] / "manifests" / "samples" / "llama-70b-inline.yaml")
FLEET = [
    dra_node("a"),
    dra_node("b"),
    dra_node("c"),
    nvidia_node("d"),
    gpu_slice("a"),
    gpu_slice("b", MI300X),
    gpu_slice("c", count=2),
    claim("taken", "a", ["gpu-0", "gpu-1", "gpu-2"]),
    device_class("gpu.nvidia.com"),
    device_class("gpu.amd.com"),
]


def write(tmp_path, items, name="fleet.json"):
    path = tmp_path / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    return str(path)


def pools_of(capsys, path):
    code = main(["pools", "--nodes", path, "-o", "json"])
    return code, {pool["name"]: pool for pool in json.loads(capsys.readouterr().out)["items"]}


def test_one_dump_has_the_gpus_of_plugins_and_drivers(tmp_path, capsys):
    code, pools = pools_of(capsys, write(tmp_path, FLEET))
    assert code == 0
    assert {
        name: (pool["gpus"]["total"], pool["gpus"]["free"]) for name, pool in pools.items()
    } == {
        "amd-mi300x-dra": (8, 8),
        "nvidia-h100-sxm-80gb": (8, 8),
        "nvidia-h100-sxm-80gb-dra": (16, 5),
    }
    dra = pools["nvidia-h100-sxm-80gb-dra"]
    assert dra["resource"] == NVIDIA_RESOURCE
    assert {node["name"]: node["unusable"] for node in dra["nodes"]} == {
        "a": None,
        "c": "ResourceSlices of gpu.nvidia.com, pool c are incomplete: "
        "1 of 2 of generation 1 exist",
    }


def test_the_notes_of_a_pool_are_data(tmp_path, capsys):
    mig = nvidia_device({**MI300X, "arch": "Hopper", "capability": "9.0.0"}, 8)
    mig["attributes"]["type"] = {"string": "mig"}
    fleet = [dra_node("a"), gpu_slice("a")]
    fleet[1]["spec"]["devices"].append(mig)
    _, pools = pools_of(capsys, write(tmp_path, fleet))
    assert pools["nvidia-h100-sxm-80gb-dra"]["notes"] == ["gpu-8: type=mig, a MIG device"]


def test_the_table_gives_the_reason_of_devices_that_do_not_count(tmp_path, capsys):
    tainted = nvidia_device(
        {"product": "NVIDIA L40S", "memory": 46068, "arch": "Ada Lovelace", "capability": "8.9.0"},
        0,
    ) | {"taints": [{"key": "unhealthy", "effect": "NoSchedule"}]}
    whole = [
        nvidia_device(
            {
                "product": "NVIDIA L40S",
                "memory": 46068,
                "arch": "Ada Lovelace",
                "capability": "8.9.0",
            },
            index,
        )
        for index in (1, 2)
    ]
    fleet = [dra_node("a"), raw_slice("a", [tainted, *whole])]
    assert main(["pools", "--nodes", write(tmp_path, fleet)]) == 0
    assert "nvidia-l40s-dra: gpu-0: device taint unhealthy" in capsys.readouterr().out


def test_labels_that_contradict_slices_are_shown_with_both_values(tmp_path, capsys):
    fleet = [dra_node("a", L40S), gpu_slice("a")]
    assert main(["pools", "--nodes", write(tmp_path, fleet)]) == 3
    output = " ".join(capsys.readouterr().out.split())
    assert "nvidia.com/gpu.product=NVIDIA-L40S is l40s" in output
    assert "gpu.nvidia.com/productName=NVIDIA H100 80GB HBM3 is h100-sxm-80gb" in output


def test_a_slice_without_its_spec_is_no_gpu(tmp_path, capsys):
    body = raw_slice("a", []) | {"spec": None}
    assert main(["pools", "--nodes", write(tmp_path, [dra_node("a"), body])]) == 3
    assert "No node offers GPUs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("broken", "want"),
    [
        ([], "spec is a list, expected an object"),
        ({"devices": "x"}, "spec.devices is 'x', expected a list"),
        ({"pool": {"name": 5}}, "spec.pool.name is 5, expected a string"),
        (
            {"devices": [{"name": "a", "attributes": {"type": "mig"}}]},
            "spec.devices[0].attributes.type is 'mig', expected an object",
        ),
    ],
)
def test_a_slice_with_a_value_of_another_type_is_named(broken, want, tmp_path, capsys):
    body = raw_slice("a", []) | {"spec": broken}
    assert main(["pools", "--nodes", write(tmp_path, [dra_node("a"), body])]) == 2
    assert f"fleet.json, ResourceSlice a-gpu.nvidia.com: {want}" in capsys.readouterr().err


def test_a_plan_takes_the_free_gpus_of_slices(tmp_path, capsys):
    fleet = write(tmp_path, [each for each in FLEET if each["metadata"]["name"] != "d"])
    assert main(["plan", "-f", LLAMA, "--nodes", fleet, "-o", "json"]) == 0
    (planned,) = json.loads(capsys.readouterr().out)["items"]
    (placement,) = planned["status"]["placements"]
    assert (placement["pool"], placement["accelerator"]) == ("amd-mi300x-dra", "mi300x")
    by_pool = {each["pool"]: each for each in planned["status"]["candidates"]}
    assert by_pool["nvidia-h100-sxm-80gb-dra"]["verdict"] == "Feasible"
    by_kind = {body["kind"]: body for body in planned["manifests"]}
    (claim_of_pod,) = by_kind["Deployment"]["spec"]["template"]["spec"]["resourceClaims"]
    template = by_kind["ResourceClaimTemplate"]
    assert claim_of_pod["resourceClaimTemplateName"] == template["metadata"]["name"]
    (request,) = template["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"]["count"] == placement["gpusPerReplica"]
    (vllm,) = by_kind["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert vllm["resources"]["claims"] == [{"name": "gpus"}]
    assert not any("gpu" in each for each in vllm["resources"]["requests"])


def test_the_plan_applies_the_claim_template_before_its_deployment(tmp_path, capsys):
    fleet = write(tmp_path, [each for each in FLEET if each["metadata"]["name"] != "d"])
    assert main(["plan", "-f", LLAMA, "--nodes", fleet]) == 0
    actions = [
        line.split()[1:3] for line in capsys.readouterr().out.splitlines() if "would" in line
    ]
    kinds = [kind for _, kind in actions]
    assert kinds.index("ResourceClaimTemplate") < kinds.index("Deployment")
