"""`tonnage plan --optimize`: the cost of a batch placed in sequence and together."""

import asyncio
import json
import sys

import yaml

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.dumps import dump
from tonnage.cli.main import main

ONE_OF_EACH = (dict(MI300X, count=1, gpusPerNode=1), dict(H100, count=1, gpusPerNode=1))
"""One GPU that fits a 70B model, and one that does not."""


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


def test_an_order_that_leaves_one_without_gpus_is_compared_with_one_that_does_not(tmp_path, capsys):
    code = optimize(tmp_path, Cluster(*ONE_OF_EACH), "-o", "json", **BATCH)
    optimized = json.loads(capsys.readouterr().out)["optimized"]
    assert code == 3, "what the operator would do is the plan; the better one is an offer"
    assert optimized["placedWhole"] == {"inSequence": 1, "together": 2}
    objects = {one["name"]: one for one in optimized["objects"]}
    assert objects["small"]["inSequence"]["pool"] == "amd-mi300x"
    assert objects["small"]["together"]["pool"] == "nvidia-h100-sxm-80gb"
    assert objects["small"]["placement"] == {"accelerators": ["h100-sxm-80gb"]}
    assert objects["large"]["inSequence"] is None
    assert objects["large"]["together"]["pool"] == "amd-mi300x"
    assert float(optimized["costPerHour"]["together"]) > float(
        optimized["costPerHour"]["inSequence"]
    )


def test_the_table_shows_both_and_how_to_get_the_better_one(tmp_path, capsys):
    optimize(tmp_path, Cluster(*ONE_OF_EACH), **BATCH)
    printed = capsys.readouterr().out
    table = printed[printed.index("One after another") :]
    for want in (
        "1 of 2 whole",
        "2 of 2 whole",
        "not whole",
        "create the objects in this order",
        'chat/small: {"accelerators": ["h100-sxm-80gb"]}',
    ):
        assert want in table


def test_the_best_sequence_is_reported_as_such(tmp_path, capsys):
    assert optimize(tmp_path, Cluster(MI300X, H100), **BATCH) == 0
    assert "One after another is the best assignment found." in capsys.readouterr().out


def test_running_objects_are_left_out_and_keep_their_gpus(tmp_path, capsys):
    cluster = Cluster(*ONE_OF_EACH)
    cluster.apply("small", spec_of())
    asyncio.run(cluster.settle())
    optimize(tmp_path, cluster, "-o", "json", **BATCH)
    optimized = json.loads(capsys.readouterr().out)["optimized"]
    assert [one["name"] for one in optimized["objects"]] == ["large"]
    assert optimized["placedWhole"] == {"inSequence": 0, "together": 0}


def test_without_the_solver_the_error_says_what_to_install(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)
    assert optimize(tmp_path, Cluster(*ONE_OF_EACH), **BATCH) == 2
    assert "pip install 'tonnage[optimize]'" in capsys.readouterr().err


def test_corrections_of_other_namespaces_do_not_count(tmp_path, capsys):
    correction = {
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
    for namespace in (NAMESPACE, "search"):
        corrections.write_text(
            yaml.safe_dump({"a": {**correction, "learntOf": f"{namespace}/llama"}})
        )
        given = ("--corrections", str(corrections), "-o", "json")
        optimize(tmp_path, Cluster(*ONE_OF_EACH), *given, **BATCH)
        optimized = json.loads(capsys.readouterr().out)["optimized"]
        together[namespace] = optimized["placedWhole"]["together"]
    assert together == {NAMESPACE: 1, "search": 2}
