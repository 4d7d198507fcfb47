"""`tonnage pools`: the pools that the operator would discover, from files."""

import json

import pytest
import yaml

from tests.support.fleets.gpu_nodes import (
    H100,
    MI300X,
    amd_node,
    gpu_pod_body,
    mixed_fleet,
    nvidia_node,
)
from tonnage.cli.main import main


def write(tmp_path, name, items, kind="List"):
    path = tmp_path / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": kind, "items": items}))
    return str(path)


def pod(name, **how):
    return {"kind": "Pod", **gpu_pod_body(name, **how)}


def pools_of(capsys, *argv):
    code = main(["pools", *argv, "-o", "json"])
    return code, {pool["name"]: pool for pool in json.loads(capsys.readouterr().out)["items"]}


def test_the_mixed_fleet_is_five_pools(tmp_path, capsys):
    code, pools = pools_of(capsys, "--nodes", write(tmp_path, "nodes.json", mixed_fleet()))
    assert code == 0
    assert {name: pool["gpus"]["free"] for name, pool in pools.items()} == {
        "amd-mi300x": 32,
        "amd-mi355x": 8,
        "nvidia-h100-sxm-80gb": 32,
        "nvidia-h200-sxm-141gb": 16,
        "nvidia-l40s": 8,
    }


def test_pods_take_gpus_on_their_node(tmp_path, capsys):
    nodes = write(tmp_path, "nodes.json", [amd_node("a"), amd_node("b")])
    pods = write(tmp_path, "pods.json", [pod("p", node="a", gpus={"amd": "5"})])
    _, pools = pools_of(capsys, "--nodes", nodes, "--pods", pods)
    assert pools["amd-mi300x"]["gpus"] == {
        "total": 16,
        "allocatable": 16,
        "free": 11,
        "largestFreeBlock": 8,
    }


def test_a_cluster_without_pods_is_all_free(tmp_path, capsys):
    nodes = write(tmp_path, "nodes.json", [amd_node("a")])
    _, pools = pools_of(capsys, "--nodes", nodes, "--pods", write(tmp_path, "pods.json", []))
    assert pools["amd-mi300x"]["gpus"]["free"] == 8


def test_a_declared_pool_replaces_a_discovered_one(tmp_path, capsys):
    labels = {"amd.com/gpu.family": "AI"}
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "mine"},
        "spec": {"nodeSelector": labels, "accelerator": "mi300x"},
    }
    nodes = write(tmp_path, "nodes.json", [amd_node("a")])
    _, pools = pools_of(capsys, "--nodes", nodes, "--pools", write(tmp_path, "p.json", [pool]))
    assert {name: pool["discovered"] for name, pool in pools.items()} == {"mine": False}


def test_the_table_shows_each_pool_and_why_a_node_is_not_used(tmp_path, capsys):
    nodes = [amd_node("a"), nvidia_node("sick", cordoned=True), nvidia_node("well")]
    assert main(["pools", "--nodes", write(tmp_path, "nodes.json", nodes)]) == 0
    heading, mi300x, h100, empty, of_nodes, a, sick, well = capsys.readouterr().out.splitlines()
    columns = "POOL ACCELERATOR MEMORY NODES GPUS USABLE FREE LARGEST $/GPU/H PRICE IN USE"
    assert heading.split() == columns.split()
    assert mi300x.split()[:9] == ["amd-mi300x", "mi300x", "192.0", "GiB", "1", "8", "8", "8", "8"]
    assert mi300x.split()[9:12] == ["1.99", "list", "price"]
    assert h100.split()[4:8] == ["2", "16", "8", "8"]
    assert empty == ""
    assert " ".join(of_nodes.split()) == "NODE POOL GPUS FREE IN USE NOT USED BECAUSE"
    assert a.split() == ["a", "amd-mi300x", "8", "8", "░" * 8]
    assert sick.split() == ["sick", "nvidia-h100-sxm-80gb", "8", "0", "-", "cordoned"]
    assert well.split()[0] == "well"


def test_a_price_of_the_pool_comes_before_the_list(tmp_path, capsys):
    selector = {"amd.com/gpu.family": "AI"}
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "mine"},
        "spec": {"nodeSelector": selector, "costPerGPUHour": "0.50"},
    }
    nodes = write(tmp_path, "nodes.json", [amd_node("a"), pool])
    _, pools = pools_of(capsys, "--nodes", nodes)
    assert pools["mine"]["costPerGPUHour"] == "0.50"
    assert pools["mine"]["priceSource"] == "price of AcceleratorPool mine"


def test_a_partition_costs_its_share_and_says_so(tmp_path, capsys):
    partitioned = MI300X | {
        "amd.com/gpu.compute-memory-partition": "cpx_nps4",
        "amd.com/gpu.vram": "24G",
        "amd.com/gpu.cu-count": "38",
        "amd.com/gpu.simd-count": "152",
    }
    nodes = write(tmp_path, "nodes.json", [amd_node("a", partitioned, gpus=64)])
    _, pools = pools_of(capsys, "--nodes", nodes)
    (pool,) = pools.values()
    assert pool["partition"] == "cpx_nps4"
    assert (pool["costPerGPUHour"], pool["costPerDeviceHour"]) == ("1.99", "0.25")
    assert pool["priceSource"] == "1/8 of the list price of 2026-05-18"
    main(["pools", "--nodes", nodes])
    assert "0.25   1/8 of the list price" in capsys.readouterr().out


def test_pools_of_the_same_devices_say_how_to_join_them(tmp_path, capsys):
    gke = {"cloud.google.com/gke-accelerator": "nvidia-h100-80gb"}
    nodes = [nvidia_node("gfd"), nvidia_node("cloud", gke), amd_node("a")]
    main(["pools", "--nodes", write(tmp_path, "nodes.json", nodes)])
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "the same devices" in line)
    names, _, advice = line.strip().partition(": ")
    assert names == "nvidia-h100-sxm-80gb, nvidia-h100-sxm-80gb-gke-accelerator"
    assert "declare an AcceleratorPool with a label that all of them have" in advice
    label = {"team": "chat"}
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "h100"},
        "spec": {"nodeSelector": label},
    }
    nodes = [nvidia_node("gfd", H100 | label), nvidia_node("cloud", gke | label), pool]
    file = write(tmp_path, "declared.json", nodes)
    _, pools = pools_of(capsys, "--nodes", file)
    assert {name: len(pool["nodes"]) for name, pool in pools.items()} == {"h100": 2}
    main(["pools", "--nodes", file])
    assert "the same devices" not in capsys.readouterr().out


def test_the_bar_shows_a_cell_a_gpu(tmp_path, capsys):
    nodes = write(tmp_path, "nodes.json", [amd_node("a")])
    pods = write(tmp_path, "pods.json", [pod("p", node="a", gpus={"amd": "3"})])
    main(["pools", "--nodes", nodes, "--pods", pods])
    printed = capsys.readouterr().out
    assert printed.count("███░░░░░") == 2


def test_of_many_nodes_the_first_are_shown_and_the_rest_summed_up(tmp_path, capsys):
    nodes = write(tmp_path, "nodes.json", [amd_node(f"n{number:02}") for number in range(30)])
    main(["pools", "--nodes", nodes])
    printed = capsys.readouterr().out
    assert "n07" in printed
    assert "n08" not in printed
    assert "... 22 more   amd-mi300x    176    176" in printed
    main(["pools", "--nodes", nodes, "--all"])
    printed = capsys.readouterr().out
    assert "n29" in printed
    assert "more" not in printed


def test_gpus_reserved_for_future_pods_are_not_free(tmp_path, capsys):
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": "llama-mi300x",
            "namespace": "chat",
            "labels": {
                "tonnage.dev/inferencedeployment": "llama",
                "tonnage.dev/placement": "mi300x",
            },
            "annotations": {
                "tonnage.dev/placement": '{"pool":"amd-mi300x","tensorParallelSize":2}'
            },
            "ownerReferences": [
                {"kind": "InferenceDeployment", "name": "llama", "uid": "u", "controller": True}
            ],
        },
        "spec": {"replicas": 3},
    }
    nodes = write(tmp_path, "nodes.json", [amd_node("a"), deployment])
    _, pools = pools_of(capsys, "--nodes", nodes)
    assert pools["amd-mi300x"]["gpus"]["free"] == 2


def test_yaml_is_what_json_is(tmp_path, capsys):
    nodes = write(tmp_path, "nodes.json", [amd_node("a")])
    main(["pools", "--nodes", nodes, "-o", "json"])
    as_json = json.loads(capsys.readouterr().out)
    main(["pools", "--nodes", nodes, "-o", "yaml"])
    assert yaml.safe_load(capsys.readouterr().out) == as_json


@pytest.mark.parametrize(
    ("nodes", "want"),
    [
        pytest.param([], "No node offers GPUs.", id="no nodes"),
        pytest.param([amd_node("a", cordoned=True)], "none of 1 node is usable", id="cordoned"),
        pytest.param([amd_node("a", labels={})], "amd-unrecognised: ", id="not recognised"),
        pytest.param(
            [{"kind": "Node", "metadata": {"name": "a"}}],
            "No node offers GPUs.",
            id="an empty node",
        ),
    ],
)
def test_a_fleet_without_a_usable_pool_ends_with_3(tmp_path, capsys, nodes, want):
    assert main(["pools", "--nodes", write(tmp_path, "nodes.json", nodes)]) == 3
    assert want in capsys.readouterr().out


def test_a_file_of_other_objects_is_refused(tmp_path, capsys):
    path = write(tmp_path, "pods.json", [pod("p", node="a", gpus={"amd": "4"}), {"a": 1}])
    assert main(["pools", "--nodes", path]) == 2
    want = (
        f"tonnage pools: --nodes {path} holds no Node, but Pod, objects without a kind: write it "
        "by `kubectl get nodes -o yaml`, or without a cluster by hand as "
        "docs/adding-an-accelerator.md shows\n"
    )
    assert capsys.readouterr().err == want


def test_a_bad_pool_is_named_with_its_field(tmp_path, capsys):
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "mine"},
        "spec": {"weight": -1},
    }
    nodes = write(tmp_path, "nodes.json", [amd_node("a")])
    assert main(["pools", "--nodes", nodes, "--pools", write(tmp_path, "p.json", [pool])]) == 2
    printed = capsys.readouterr().err
    assert "AcceleratorPool mine: spec.nodeSelector: is required" in printed
    assert "spec.weight" in printed


def test_a_shard_has_the_nodes_and_pools_with_its_label(tmp_path, capsys):
    nodes = [amd_node("none"), amd_node("e", {**MI300X, "tonnage.dev/shard": "east"})]
    path = write(tmp_path, "nodes.json", nodes)
    _, pools = pools_of(capsys, "--nodes", path, "--shard", "east")
    assert {name: pool["gpus"]["total"] for name, pool in pools.items()} == {"east-amd-mi300x": 8}
    _, pools = pools_of(capsys, "--nodes", path)
    assert {name: pool["gpus"]["total"] for name, pool in pools.items()} == {"amd-mi300x": 8}
