"""`tonnage plan` and `tonnage explain` where the operator chooses the engine."""

import asyncio
import json
from pathlib import Path

import pytest
import yaml

from tests.support.in_memory.cluster import L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.dumps import dump
from tonnage.cli.main import main
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, PODS

AUTO = {"type": "Auto"}
BY_RULE = "deepseek-v3"
"""A model that the catalogue gives to SGLang on MI300X."""


@pytest.fixture
def cluster():
    """A cluster in which SGLang runs the model, as the operator chose."""
    cluster = Cluster(MI300X, L40S)
    cluster.apply("llama", spec_of(BY_RULE, engine=AUTO))
    asyncio.run(cluster.settle())
    return cluster


def file_of(tmp_path, more=None, **engines):
    """Objects by name, with these engines, and `more` fields of all specs."""
    bodies = [
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec_of(model, engine=engine, **(more or {})),
        }
        for name, (model, engine) in engines.items()
    ]
    path = tmp_path / "infd.yaml"
    path.write_text(yaml.safe_dump_all(bodies))
    return str(path)


def test_the_table_has_the_engine_of_each_pool(tmp_path, capsys):
    nodes = dump(Cluster(MI300X, L40S).api, tmp_path / "nodes.yaml", [NODES])
    objects = file_of(tmp_path, chosen=("llama-3.1-8b", AUTO), named=("llama-3.1-8b", {}))
    assert main(["plan", "-f", objects, "--nodes", nodes]) == 0
    chosen, named = capsys.readouterr().out.split(f"{NAMESPACE}/named")
    assert "ENGINE" in chosen
    assert "/ vllm: fits with TP 1" in chosen
    assert "ENGINE" not in named
    assert "/ vllm" not in named


def test_adapters_are_left_to_vllm_and_refused_where_sglang_is_named(tmp_path, capsys):
    nodes = dump(Cluster(MI300X).api, tmp_path / "nodes.yaml", [NODES])
    adapters = {"lora": {"maxLoras": 2, "maxRank": 16}}
    objects = file_of(tmp_path, adapters, chosen=(BY_RULE, AUTO), named=(BY_RULE, {"sglang": {}}))
    assert main(["plan", "-f", objects, "--nodes", nodes]) == 3
    chosen, named = capsys.readouterr().out.split(f"{NAMESPACE}/named")
    assert "/ vllm: fits with TP" in chosen
    why = "spec.lora: adapters are not supported with SGLang; run the model with vLLM"
    assert f"sglang: {why}" in " ".join(chosen.split())
    assert why in " ".join(named.split())


def test_pods_without_their_deployment_keep_the_engine(cluster, tmp_path, capsys):
    words = ["-f", dump(cluster.api, tmp_path / "infd.yaml", [INFERENCE_DEPLOYMENTS])]
    for flag, kind in {"--nodes": NODES, "--pods": PODS}.items():
        words += [flag, dump(cluster.api, tmp_path / f"{kind.plural}.yaml", [kind])]
    assert main(["plan", *words, "-o", "json"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["status"] == cluster.status()
    assert item["status"]["placements"][0]["engine"] == "sglang"


def test_explain_names_the_engine_that_runs(cluster, tmp_path, capsys):
    whole = dump(cluster.api, tmp_path / "whole.yaml")
    assert main(["explain", "llama", "-n", NAMESPACE, "--nodes", whole]) == 0
    printed = capsys.readouterr().out
    assert "sglang" in printed
    assert "rule DeepSeekV3InFp8" in " ".join(printed.split())


def test_a_batch_is_assigned_with_the_engine_of_each_pool(tmp_path, capsys):
    nodes = dump(Cluster(MI300X, L40S).api, tmp_path / "nodes.yaml", [NODES])
    path = Path(file_of(tmp_path, small=("llama-3.1-8b", AUTO), newer=("llama-3.1-8b", AUTO)))
    small, newer = yaml.safe_load_all(path.read_text())
    # A class that vLLM does not have.
    newer["spec"]["model"]["source"]["inline"]["config"]["architectures"] = [
        "GigaChat35ForCausalLM"
    ]
    path.write_text(yaml.safe_dump_all([small, newer]))
    assert main(["plan", "-f", str(path), "--nodes", nodes, "--optimize", "-o", "json"]) == 0
    read = json.loads(capsys.readouterr().out)
    optimized = {one["name"]: one["together"]["pool"] for one in read["optimized"]["objects"]}
    assert optimized["newer"] == "amd-mi300x"
    planned = {item["name"]: item["status"]["placements"][0]["engine"] for item in read["items"]}
    assert planned == {"small": "vllm", "newer": "sglang"}
