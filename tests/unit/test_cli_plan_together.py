"""`tonnage plan --optimize`: what a batch costs one after another, and all together."""

import asyncio
import json
import sys

import yaml

from tests.support.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.dumps import dump
from tonnage.cli.main import main

ONE_OF_EACH = (dict(MI300X, count=1, gpusPerNode=1), dict(H100, count=1, gpusPerNode=1))
"""One GPU that carries a 70B model, and one that does not."""


def write(tmp_path, **models):
    path = tmp_path / "batch.yaml"
    bodies = [
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": spec_of(model),
        }
        for name, model in models.items()
    ]
    path.write_text(yaml.safe_dump_all(bodies))
    return str(path)


def optimize(tmp_path, cluster, *more, **models):
    nodes = dump(cluster.api, tmp_path / "cluster.yaml")
    return main(["plan", "-f", write(tmp_path, **models), "--nodes", nodes, "--optimize", *more])


BATCH = {"small": "llama-3.1-8b", "large": "llama-3.3-70b"}


def test_an_order_that_leaves_one_without_gpus_is_told_beside_one_that_does_not(tmp_path, capsys):
    code = optimize(tmp_path, Cluster(*ONE_OF_EACH), "-o", "json", **BATCH)
    told = json.loads(capsys.readouterr().out)["optimized"]
    assert code == 3, "what the operator would do is the plan; the better one is an offer"
    assert told["placedWhole"] == {"inSequence": 1, "together": 2}
    found = {one["name"]: one for one in told["objects"]}
    assert found["small"]["inSequence"]["pool"] == "amd-mi300x"
    assert found["small"]["together"]["pool"] == "nvidia-h100-sxm-80gb"
    assert found["small"]["placement"] == {"accelerators": ["h100-sxm-80gb"]}
    assert found["large"]["inSequence"] is None
    assert found["large"]["together"]["pool"] == "amd-mi300x"
    assert float(told["costPerHour"]["together"]) > float(told["costPerHour"]["inSequence"])


def test_the_table_shows_both_and_how_to_get_the_better_one(tmp_path, capsys):
    optimize(tmp_path, Cluster(*ONE_OF_EACH), **BATCH)
    printed = capsys.readouterr().out
    table = printed[printed.index("One after another") :]
    for want in (
        "1 of 2 whole",
        "2 of 2 whole",
        "not whole",
        "create them in this order",
        'chat/small: {"accelerators": ["h100-sxm-80gb"]}',
    ):
        assert want in table


def test_where_the_sequence_is_the_best_that_is_said(tmp_path, capsys):
    assert optimize(tmp_path, Cluster(MI300X, H100), **BATCH) == 0
    assert "One after another is the best that was found." in capsys.readouterr().out


def test_what_runs_already_stays_out_of_it_and_keeps_its_gpus(tmp_path, capsys):
    cluster = Cluster(*ONE_OF_EACH)
    cluster.apply("small", spec_of())
    asyncio.run(cluster.settle())
    optimize(tmp_path, cluster, "-o", "json", **BATCH)
    told = json.loads(capsys.readouterr().out)["optimized"]
    assert [one["name"] for one in told["objects"]] == ["large"]
    assert told["placedWhole"] == {"inSequence": 0, "together": 0}


def test_without_the_solver_it_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert optimize(tmp_path, Cluster(*ONE_OF_EACH), **BATCH) == 2
    assert "pip install 'tonnage[optimize]'" in capsys.readouterr().err


def test_lessons_of_other_namespaces_do_not_count(tmp_path, capsys):
    lesson = {
        "model": "LlamaForCausalLM-32x4096-8.0B",
        "weights": "bfloat16",
        "kvCache": "auto",
        "vllmVersion": "0.32.0",
        "accelerator": "h100-sxm-80gb",
        "extraBytes": 70 * 2**30,
        "origin": "Measurement",
    }
    corrections = tmp_path / "corrections.yaml"
    together = {}
    for teacher in (NAMESPACE, "search"):
        corrections.write_text(yaml.safe_dump({"a": {**lesson, "learntOf": f"{teacher}/llama"}}))
        given = ("--corrections", str(corrections), "-o", "json")
        optimize(tmp_path, Cluster(*ONE_OF_EACH), *given, **BATCH)
        told = json.loads(capsys.readouterr().out)["optimized"]
        together[teacher] = told["placedWhole"]["together"]
    assert together == {NAMESPACE: 1, "search": 2}
