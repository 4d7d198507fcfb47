"""`approve`, `restart` and `unpin`: changes of the spec by a user, and refused ones."""

import asyncio
import json

import pytest

from tests.support.api_server.kubeconfigs import write_kubeconfig
from tests.support.api_server.live_editor import FakeEditor, edit
from tests.support.api_server.live_fake import connect_to
from tests.support.foreign.scripted_server import Answer, serving
from tests.support.in_memory.cluster import MI300X, Cluster, spec_of
from tests.support.in_memory.serving import served
from tonnage.cli.commands import explain as explain_module
from tonnage.cli.commands import plan as plan_module
from tonnage.cli.main import main
from tonnage.kube.connection import connect
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.single_fields import SpecEditor
from tonnage.kube.transport import Transport

OTHER_IMAGE = {"vllm": {"image": "registry.local/vllm:other"}}


@pytest.fixture
def waiting():
    """A cluster with an object whose first plan waits for approval."""
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(approval="Manual", replicas=2))
    asyncio.run(cluster.settle())
    return cluster


@pytest.fixture
def run(capsys, monkeypatch):
    """Exit code of a command on a cluster, and its output on stdout or stderr."""

    def run(cluster, *words):
        edit(monkeypatch, cluster.api)
        code = main(list(words))
        printed = capsys.readouterr()
        assert bool(printed.out) != bool(printed.err)
        return code, printed.out + printed.err

    return run


def spec(cluster):
    return cluster.inference_deployment()["spec"]


def test_the_pending_plan_is_approved_and_printed(run, waiting):
    plan = waiting.status()["proposedPlan"]
    code, output = run(waiting, "approve", "llama")
    assert code == 0
    assert output == (
        f"chat/llama: approved plan {plan['hash']}: 2 replicas on pool amd-mi300x"
        " (mi300x, TP 1) from vllm/vllm-openai-rocm:v0.32.0, 3.98/h\n"
    )
    assert spec(waiting) == {**spec_of(approval="Manual", replicas=2), "approvedPlan": plan["hash"]}
    asyncio.run(waiting.settle())
    assert waiting.conditions()["Ready"] == ("True", "ReplicasReady")


@pytest.mark.parametrize("name", ["infd/llama", "inferencedeployments.tonnage.dev/llama"])
def test_the_object_can_be_named_as_kubectl_does(run, waiting, name):
    assert run(waiting, "approve", name, "-n", "chat")[0] == 0


def test_another_plan_than_the_one_that_waits_is_refused(run, waiting):
    code, output = run(waiting, "approve", "llama", "--plan", "0123456789abcdef")
    waits = waiting.status()["proposedPlan"]["hash"]
    assert code == 2
    assert f"plan 0123456789abcdef does not wait for approval, {waits} does: nothing runs" in output
    assert "approvedPlan" not in spec(waiting)


def test_a_spec_that_the_operator_has_not_observed_is_not_approved(run, waiting):
    waiting.apply("llama", spec_of(approval="Manual", replicas=2, engine=OTHER_IMAGE))
    code, output = run(waiting, "approve", "llama")
    assert code == 2
    assert "is at generation 2, and the operator has reported on 1" in output
    assert "approvedPlan" not in spec(waiting)


@pytest.mark.parametrize(
    ("wanted", "want"),
    [
        ({}, "no plan waits: spec.approval is Automatic"),
        ({"approval": "Manual"}, "no plan waits for approval; plan "),
    ],
)
def test_without_a_pending_plan_nothing_is_approved(run, wanted, want):
    cluster = asyncio.run(served(MI300X))
    cluster.apply("llama", spec_of(**wanted))
    asyncio.run(cluster.resync())
    before = spec(cluster)
    code, output = run(cluster, "approve", "llama")
    assert code == 2
    assert want in output
    assert spec(cluster) == before


def test_an_object_that_changes_meanwhile_is_not_approved(run, waiting, monkeypatch):
    read = FakeEditor.get

    async def read_and_change(self, *where):
        body = await read(self, *where)
        waiting.apply("llama", spec_of(approval="Manual", engine=OTHER_IMAGE))
        return body

    monkeypatch.setattr(FakeEditor, "get", read_and_change)
    code, output = run(waiting, "approve", "llama")
    assert code == 2
    assert "chat/llama has changed while it was read, and nothing was written" in output
    assert "approvedPlan" not in spec(waiting)


def test_a_status_that_cannot_be_read_is_refused(run, waiting):
    body = waiting.inference_deployment()
    body["status"]["proposedPlan"] = {"hash": "0123456789abcdef"}
    waiting.api.put(INFERENCE_DEPLOYMENTS, body)
    code, output = run(waiting, "approve", "llama")
    assert code == 2
    assert "chat/llama cannot be read: status.proposedPlan." in output
    assert ": is required" in output


@pytest.mark.parametrize("command", ["approve", "restart", "unpin"])
@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("missing", "InferenceDeployment chat/missing not found"),
        ("deploy/llama", "'deploy' is no InferenceDeployment; give NAME or infd/NAME"),
        ("infd/", "'infd/' has no name"),
    ],
)
def test_a_missing_object_is_an_error(run, waiting, command, name, want):
    code, output = run(waiting, command, name)
    assert code == 2
    assert want in output


@pytest.mark.parametrize("command", ["approve", "restart", "unpin"])
def test_an_unreachable_cluster_is_a_one_line_error(capsys, tmp_path, command):
    unreachable = write_kubeconfig(tmp_path / "kubeconfig", one=None)
    assert main([command, "llama", "--kubeconfig", unreachable]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"tonnage {command}: default/llama was not changed: get Inference")


def test_a_restart_rolls_the_replicas_and_is_no_other_plan(run):
    cluster = asyncio.run(served(MI300X, rollout={"strategy": "Recreate"}))
    pods = cluster.pods()
    code, output = run(cluster, "restart", "llama")
    at = spec(cluster)["rollout"]["restartedAt"]
    assert code == 0
    assert output == f"chat/llama: restarting all replicas (spec.rollout.restartedAt: {at})\n"
    asyncio.run(cluster.settle())
    (pod,) = cluster.pods()
    assert pod["metadata"]["name"] != pods[0]["metadata"]["name"]
    template = cluster.deployment("llama-mi300x")["spec"]["template"]
    assert template["metadata"]["annotations"] == {"tonnage.dev/restarted-at": at}
    assert spec(cluster)["rollout"]["strategy"] == "Recreate"


def test_a_restart_with_a_pending_plan_says_when_it_comes(run, waiting):
    code, output = run(waiting, "restart", "llama")
    assert code == 0
    assert "together with the pending plan, once it is approved" in output


def test_unpin_carries_out_the_pending_plan(run, waiting):
    waiting.apply("llama", {**spec(waiting), "approvedPlan": "0123456789abcdef"})
    asyncio.run(waiting.settle())
    waits = waiting.status()["proposedPlan"]["hash"]
    code, output = run(waiting, "unpin", "llama")
    assert code == 0
    assert output == (
        "chat/llama: plans are carried out without approval from now on,"
        f" pending plan {waits} at once\n"
    )
    assert spec(waiting) == spec_of(approval="Automatic", replicas=2)
    asyncio.run(waiting.settle())
    assert waiting.conditions()["Ready"] == ("True", "ReplicasReady")


def test_an_object_that_is_not_pinned_is_not_unpinned(run):
    cluster = asyncio.run(served(MI300X))
    code, output = run(cluster, "unpin", "llama")
    assert code == 2
    assert "chat/llama: nothing is pinned: spec.approval is Automatic" in output


def test_plan_and_explain_show_the_pending_plan(capsys, monkeypatch, tmp_path):
    cluster = Cluster(MI300X)
    connect_to(monkeypatch, cluster.api, plan_module, explain_module)
    body = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "llama", "namespace": "chat"},
        "spec": spec_of(approval="Manual"),
    }
    manifest = tmp_path / "llama.yaml"
    manifest.write_text(json.dumps(body))
    assert main(["plan", "-f", str(manifest)]) == 0
    planned = capsys.readouterr().out
    cluster.apply("llama", body["spec"])
    asyncio.run(cluster.settle())
    waits = cluster.status()["proposedPlan"]["hash"]
    assert f"Placed=False AwaitingApproval: plan {waits} waits for approval" in planned
    assert "would apply" not in planned
    assert main(["explain", "llama"]) == 0
    assert f"a user must approve plan {waits}: nothing runs yet" in capsys.readouterr().out
    assert main(["plan", "-f", str(manifest), "--diff"]) == 0
    body["spec"] = spec_of(approval="Manual", engine=OTHER_IMAGE)
    manifest.write_text(json.dumps(body))
    capsys.readouterr()
    assert main(["plan", "-f", str(manifest), "--diff"]) == 1
    diff = capsys.readouterr().out
    assert f"-  hash: {waits}" in diff
    assert "registry.local/vllm:other" in diff


async def test_a_change_is_a_merge_patch_with_the_resource_version_that_was_read(tmp_path):
    seen = {"metadata": {"namespace": "chat", "name": "llama", "resourceVersion": "7"}}
    async with serving(Answer(body={"kind": "InferenceDeployment"})) as server:
        kubeconfig = write_kubeconfig(tmp_path / "kubeconfig", one=None)
        async with connect(kubeconfig) as connection:
            connection.client.configuration.host = server.url
            editor = SpecEditor(Transport(connection.client, lambda *_: None))
            await editor.change(INFERENCE_DEPLOYMENTS, seen, {"approvedPlan": None})
    (asked,) = server.asked
    assert (asked.method, asked.content_type) == ("PATCH", "application/merge-patch+json")
    assert asked.path.endswith("/namespaces/chat/inferencedeployments/llama")
    assert asked.query == {"fieldManager": "kubectl-tonnage", "fieldValidation": "Strict"}
    assert asked.body == {"metadata": {"resourceVersion": "7"}, "spec": {"approvedPlan": None}}
