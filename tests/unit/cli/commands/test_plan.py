"""`tonnage plan`: the plan of the operator, from files."""

import copy
import json
from pathlib import Path

import pytest
import yaml

from tests.support.fleets.gpu_nodes import amd_node, gpu_pod_body, mixed_fleet, nvidia_node
from tests.support.foreign.hub_server import HubFile, HubServer
from tonnage.cli.main import main

SAMPLES = Path(__file__).parents[4] / "manifests" / "samples"
LLAMA = yaml.safe_load((SAMPLES / "llama-70b-inline.yaml").read_text())
QWEN = yaml.safe_load((SAMPLES / "qwen3-8b-inline.yaml").read_text())
CONFIG = LLAMA["spec"]["model"]["source"]["inline"]["config"]
HUB_SOURCE = {"huggingFace": {"repo": "acme/llama", "tokenSecretRef": {"name": "hf"}}}


def write(tmp_path, name, *bodies):
    path = tmp_path / name
    path.write_text("---\n".join(yaml.safe_dump(body) for body in bodies))
    return str(path)


def nodes_file(tmp_path, nodes):
    return write(tmp_path, "nodes.yaml", {"kind": "List", "items": nodes})


def infd(body=LLAMA, **changes):
    """The object with other fields, written as paths: workload__maxModelLen=5."""
    changed = copy.deepcopy(body)
    for path, value in changes.items():
        *parents, last = path.split("__")
        at = changed
        for parent in parents:
            at = at.setdefault(parent, {})
        at[last] = value
    return changed


def plan(tmp_path, capsys, *bodies, nodes=None, more=()):
    """Exit code and plans of the bodies in one file."""
    files = [
        *("-f", write(tmp_path, "infd.yaml", *bodies)),
        *("--nodes", nodes_file(tmp_path, nodes or mixed_fleet())),
    ]
    code = main(["plan", *files, *more, "-o", "json"])
    return code, json.loads(capsys.readouterr().out)["items"]


def condition(planned, kind):
    return next(one for one in planned["status"]["conditions"] if one["type"] == kind)


def test_a_70b_model_belongs_on_one_mi300x_and_every_other_pool_has_its_reason(tmp_path, capsys):
    code, (planned,) = plan(tmp_path, capsys, LLAMA)
    (placement,) = planned["status"]["placements"]
    assert code == 0
    assert (placement["pool"], placement["tensorParallelSize"]) == ("amd-mi300x", 1)
    candidates = {one["pool"]: one for one in planned["status"]["candidates"]}
    assert len(candidates) == 5
    assert candidates["nvidia-h100-sxm-80gb"]["tensorParallelSize"] == 4
    assert candidates["nvidia-h100-sxm-80gb"]["reason"] == "CostsMore"


def test_the_children_are_those_that_would_be_applied(tmp_path, capsys):
    _, (planned,) = plan(tmp_path, capsys, LLAMA)
    service, deployment = planned["manifests"]
    assert (service["kind"], service["metadata"]["name"]) == ("Service", "llama-70b-inline")
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["amd.com/gpu"] == "1"
    assert planned["namespace"] == "default"


def test_the_same_files_give_the_same_plan(tmp_path, capsys):
    first, second = (plan(tmp_path, capsys, LLAMA)[1][0]["manifests"] for _ in range(2))
    assert first == second


def test_without_amd_nodes_it_takes_four_h100(tmp_path, capsys):
    nodes = [nvidia_node(f"h100-{number}") for number in range(2)]
    code, (planned,) = plan(tmp_path, capsys, LLAMA, nodes=nodes)
    (placement,) = planned["status"]["placements"]
    assert code == 0
    assert placement["accelerator"] == "h100-sxm-80gb"
    assert placement["tensorParallelSize"] == 4


def test_a_model_that_fits_nowhere_ends_with_3_and_the_shortage(tmp_path, capsys):
    body = yaml.safe_load((SAMPLES / "nothing-fits.yaml").read_text())
    code, (planned,) = plan(tmp_path, capsys, body)
    assert code == 3
    assert condition(planned, "Placed")["reason"] == "DoesNotFit"
    assert "GiB" in condition(planned, "Placed")["message"]
    assert planned["manifests"] == []


def test_gpus_reserved_for_one_object_are_taken_for_the_next(tmp_path, capsys):
    first = infd(QWEN, metadata__name="first", spec__replicas=5)
    second = infd(QWEN, metadata__name="second", spec__replicas=5)
    code, (one, two) = plan(tmp_path, capsys, first, second, nodes=[amd_node("a")])
    assert code == 3
    assert one["status"]["placements"][0]["replicas"] == 5
    assert two["status"]["placements"][0]["replicas"] == 3
    assert condition(two, "Placed")["reason"] == "InsufficientGPUs"


def test_running_pods_leave_no_capacity(tmp_path, capsys):
    pod = {"kind": "Pod", **gpu_pod_body("p", node="a", gpus={"amd": "8"})}
    pods = write(tmp_path, "pods.yaml", {"kind": "List", "items": [pod]})
    code, (planned,) = plan(tmp_path, capsys, QWEN, nodes=[amd_node("a")], more=["--pods", pods])
    assert code == 3
    assert condition(planned, "Placed")["reason"] == "InsufficientGPUs"


def from_config_map(name):
    source = {"configMap": {"name": name, "loadFrom": "acme/llama"}}
    return infd(spec__model={"source": source})


def test_pods_and_pools_in_the_file_of_the_nodes_count(tmp_path, capsys):
    busy = [
        gpu_pod_body(f"busy-{number}", node=f"mi300x-{number}", gpus={"amd": 8})
        for number in range(4)
    ]
    selector = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "team"},
        "spec": {"nodeSelector": selector, "costPerGPUHour": "0.01"},
    }
    dump = [*mixed_fleet(), *({"kind": "Pod", **pod} for pod in busy), pool]
    _, (planned,) = plan(tmp_path, capsys, LLAMA, nodes=dump)
    candidates = {one["pool"]: one for one in planned["status"]["candidates"]}
    assert candidates["amd-mi300x"]["reason"] == "InsufficientGPUs"
    assert candidates["team"]["verdict"] == "Chosen"


def test_facts_come_from_a_config_map_in_the_files(tmp_path, capsys):
    facts = {
        "kind": "ConfigMap",
        "metadata": {"name": "facts"},
        "data": {"config.json": json.dumps(CONFIG)},
    }
    code, (planned,) = plan(tmp_path, capsys, from_config_map("facts"), facts)
    assert code == 0
    assert planned["status"]["model"]["architecture"] == "LlamaForCausalLM"


def test_a_config_map_that_is_in_none_of_the_files_is_named(tmp_path, capsys):
    code, (planned,) = plan(tmp_path, capsys, from_config_map("facts"))
    assert code == 3
    assert condition(planned, "Accepted")["reason"] == "ModelNotFound"
    assert "ConfigMap default/facts not found" in condition(planned, "Accepted")["message"]


def test_a_gated_model_is_read_with_the_token_of_the_user(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    with HubServer() as hub:
        files = {"config.json": HubFile.of(json.dumps(CONFIG))}
        hub.add_repo("acme/llama", files, gated=True, readers=("hf_mine",))
        code, (planned,) = plan(
            tmp_path,
            capsys,
            infd(spec__model={"source": HUB_SOURCE}),
            more=["--hf-endpoint", hub.endpoint],
        )
    assert condition(planned, "Accepted")["reason"] == "Valid"
    assert code == 0
    assert "hf_mine" not in json.dumps(planned)
    assert '"secretKeyRef": {"name": "hf", "key": "token"}' in json.dumps(planned["manifests"])


def test_an_unreachable_hub_is_reported_and_ends_with_3(tmp_path, capsys):
    body = infd(spec__model={"source": HUB_SOURCE})
    more = ["--hf-endpoint", "http://127.0.0.1:1"]
    code, (planned,) = plan(tmp_path, capsys, body, more=more)
    assert code == 3
    assert condition(planned, "Accepted")["reason"] == "ModelSourceUnreachable"


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"architectures": ["LlamaForCausalLM"], "hidden_size": -1},
        {"architectures": ["BertModel"], "model_type": "bert"},
        {**CONFIG, "num_hidden_layers": 10**30},
    ],
    ids=["empty", "negative", "no decoder", "absurd"],
)
def test_an_invalid_config_is_an_answer(tmp_path, capsys, config):
    body = infd(spec__model={"source": {"inline": {"config": config}}})
    code, (planned,) = plan(tmp_path, capsys, body)
    assert code == 3
    assert condition(planned, "Accepted")["status"] == "False"


@pytest.mark.parametrize(
    ("body", "want"),
    [
        pytest.param(
            infd(spec__workload={"maxModelLen": -1}),
            "InferenceDeployment llama-70b-inline: spec.workload.maxModelLen",
            id="a negative length",
        ),
        pytest.param(
            infd(spec__model={}), "spec.model.source: is required", id="no source of the model"
        ),
        pytest.param({**LLAMA, "spec": None}, "infd.yaml, Infer", id="no spec"),
        pytest.param({**LLAMA, "spec": [1]}, "infd.yaml, Infer", id="a spec that is a list"),
        pytest.param(
            {**LLAMA, "apiVersion": "tonnage.dev/v9"},
            "apiVersion is 'tonnage.dev/v9', expected tonnage.dev/v1alpha1",
            id="another version",
        ),
        pytest.param(
            infd(metadata__name="Llama 70B"), "metadata.name is 'Llama 70B'", id="a bad name"
        ),
        pytest.param(infd(metadata=[]), "metadata is a list, expected an object", id="no metadata"),
        pytest.param(infd(metadata={}), "metadata.name is missing, expected a name", id="no name"),
        pytest.param(
            infd(replicas=5), "'replicas' is none of apiVersion, kind, metadata", id="a stray field"
        ),
        pytest.param(
            infd(metadata__namespace="A_b"), "metadata.namespace is 'A_b'", id="a bad namespace"
        ),
        pytest.param(
            infd(metadata__labels=["a"]),
            "metadata.labels is a list, expected an object",
            id="labels",
        ),
        pytest.param(amd_node("a"), "no InferenceDeployment found", id="another kind"),
    ],
)
def test_an_object_that_the_api_server_would_refuse_ends_with_2(tmp_path, capsys, body, want):
    nodes = nodes_file(tmp_path, mixed_fleet())
    assert main(["plan", "-f", write(tmp_path, "infd.yaml", body), "--nodes", nodes]) == 2
    printed = capsys.readouterr()
    assert want in printed.err
    assert len(printed.err.splitlines()) == 1
    assert printed.out == ""


def test_a_duplicate_object_is_refused(tmp_path, capsys):
    one, other = write(tmp_path, "one.yaml", LLAMA), write(tmp_path, "other.yaml", LLAMA)
    nodes = nodes_file(tmp_path, mixed_fleet())
    assert main(["plan", "-f", one, "-f", other, "--nodes", nodes]) == 2
    assert f"default/llama-70b-inline was already in {one}" in capsys.readouterr().err


def test_the_table_shows_conditions_memory_and_actions(tmp_path, capsys):
    files = ["-f", write(tmp_path, "infd.yaml", LLAMA)]
    assert main(["plan", *files, "--nodes", nodes_file(tmp_path, mixed_fleet()), "-n", "chat"]) == 0
    printed = capsys.readouterr().out
    for want in (
        "chat/llama-70b-inline",
        "Accepted=True Valid: LlamaForCausalLM",
        "Placed=True PoolChosen: amd-mi300x",
        "Memory of one GPU in GiB: weights 131.4 + ",
        "would apply Deployment llama-70b-inline-mi300x",
        "nvidia-l40s",
    ):
        assert want in printed


def test_the_fleet_may_come_from_standard_input(tmp_path, capsys, monkeypatch):
    path = Path(nodes_file(tmp_path, mixed_fleet()))
    with path.open() as piped:
        monkeypatch.setattr("sys.stdin", piped)
        assert main(["plan", "-f", write(tmp_path, "infd.yaml", LLAMA), "--nodes", "-"]) == 0
    assert "PoolChosen" in capsys.readouterr().out


# Shards


def of_shard(body, shard):
    changed = copy.deepcopy(body)
    changed["metadata"].setdefault("labels", {})["tonnage.dev/shard"] = shard
    return changed


def test_an_object_is_planned_on_the_nodes_of_its_shard(tmp_path, capsys):
    nodes = [amd_node("none"), of_shard(amd_node("e"), "east")]
    code, (planned,) = plan(tmp_path, capsys, of_shard(LLAMA, "east"), nodes=nodes)
    (placement,) = planned["status"]["placements"]
    assert (code, placement["pool"]) == (0, "east-amd-mi300x")
    for child in planned["manifests"]:
        assert child["metadata"]["labels"]["tonnage.dev/shard"] == "east"


def test_objects_of_two_shards_are_refused(tmp_path, capsys):
    other = of_shard(LLAMA, "west")
    other["metadata"]["name"] = "other"
    files = ["-f", write(tmp_path, "infd.yaml", of_shard(LLAMA, "east"), other)]
    nodes = nodes_file(tmp_path, mixed_fleet())
    assert main(["plan", *files, "--nodes", nodes]) == 2
    error = capsys.readouterr().err
    assert "is of shard east" in error
    assert "expected objects of one shard" in error
