"""A cluster that cannot be read is an input error: one line and exit code 2."""

import asyncio

import pytest
import yaml

from tests.support.api_server.fake_api import FakeApi
from tests.support.api_server.kubeconfigs import write_kubeconfig
from tests.support.api_server.live_fake import connect_to
from tests.support.in_memory.cluster import MI300X, Cluster
from tests.support.in_memory.serving import served
from tonnage.cli.commands import plan as plan_module
from tonnage.cli.commands import pools as pools_module
from tonnage.cli.main import main
from tonnage.cli.sources.live_cluster import read_cluster
from tonnage.kube.kinds import CONFIG_MAPS, NODES, PODS, SECRETS


@pytest.fixture
def unreachable(tmp_path, monkeypatch):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    return write_kubeconfig(tmp_path / "kubeconfig", one=None)


@pytest.mark.parametrize("words", [["pools"], ["explain", "llama"]])
def test_an_unreachable_cluster_is_a_one_line_error(capsys, unreachable, words):
    assert main([*words, "--kubeconfig", unreachable]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    (line,) = printed.err.splitlines()
    assert line.startswith(f"tonnage {words[0]}: the cluster cannot be read: list Node")


def test_a_missing_context_is_an_error(capsys, unreachable):
    assert main(["explain", "llama", "--kubeconfig", unreachable, "--context", "two"]) == 2
    assert "the kubeconfig has no context 'two'" in capsys.readouterr().err


def test_an_unreadable_kubeconfig_is_named(capsys, tmp_path):
    path = tmp_path / "kubeconfig"
    path.write_text("words")
    assert main(["explain", "llama", "--kubeconfig", str(path)]) == 2
    assert f"kubeconfig {path} cannot be read" in capsys.readouterr().err


def test_pods_without_gpus_are_dropped():
    cluster = asyncio.run(served(MI300X))
    body = {"metadata": {"name": "web", "namespace": "chat"}, "spec": {"containers": []}}
    cluster.api.put(PODS, body)
    read = asyncio.run(read_cluster(cluster.api))
    kept = {document.name for document in read if document.kind == "Pod"}
    assert kept == {pod["metadata"]["name"] for pod in cluster.pods()}


def test_pools_of_the_cluster(capsys, monkeypatch):
    connect_to(monkeypatch, Cluster(MI300X).api, pools_module)
    assert main(["pools"]) == 0
    assert capsys.readouterr().out.splitlines()[1].startswith("amd-mi300x ")


def test_facts_of_a_model_come_from_the_cluster_and_its_secrets_are_not_read(
    tmp_path, capsys, monkeypatch
):
    cluster = Cluster(MI300X)
    facts = {"metadata": {"name": "facts", "namespace": "chat"}, "data": {"config.json": "{}"}}
    cluster.api.put(CONFIG_MAPS, facts)
    connect_to(monkeypatch, cluster.api, plan_module)
    path = tmp_path / "llama.yaml"
    hub = {"repo": "acme/llama", "tokenSecretRef": {"name": "hf"}}
    sources = {"one": {"configMap": {"name": "facts"}}, "two": {"huggingFace": hub}}
    bodies = [
        {
            "apiVersion": "tonnage.dev/v1alpha1",
            "kind": "InferenceDeployment",
            "metadata": {"name": name},
            "spec": {"model": {"source": source}, "workload": {"maxModelLen": 8192}},
        }
        for name, source in sources.items()
    ]
    path.write_text(yaml.safe_dump_all(bodies))
    assert main(["plan", "-f", str(path), "--hf-endpoint", "http://127.0.0.1:1"]) == 3
    read = [call.name for call in cluster.api.calls if call.kind == CONFIG_MAPS]
    assert sorted(read) == ["facts", "tonnage-corrections"]
    assert [call for call in cluster.api.calls if call.kind == SECRETS] == []
    printed = capsys.readouterr().out
    assert "Accepted=False InvalidModel" in printed
    assert "Accepted=False ModelSourceUnreachable" in printed


def test_a_file_of_nodes_replaces_the_nodes_of_the_cluster(tmp_path, capsys, monkeypatch):
    cluster = asyncio.run(served(MI300X))
    connect_to(monkeypatch, cluster.api, plan_module)
    body = cluster.inference_deployment() | {"status": {}}
    path, nodes = tmp_path / "llama.yaml", tmp_path / "nodes.yaml"
    path.write_text(yaml.safe_dump(body))
    fleet = FakeApi()
    nodes.write_text(yaml.safe_dump({"kind": "NodeList", "items": fleet.objects(NODES)}))
    code = main(["plan", "-f", str(path), "--diff", "--nodes", str(nodes)])
    assert code == 3, "without any node nothing is placed"
    assert "-placed: True PoolChosen" in capsys.readouterr().out
