"""`tonnage plan` and `tonnage explain` of objects with an endpoint for long requests."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.api_server.live_fake import connect_to
from tests.support.in_memory.cluster import L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import loading
from tests.support.in_memory.dumps import dump
from tests.support.in_memory.long_context import LONG, apart, served_apart, together, two_cards
from tonnage.cli.commands import explain, plan
from tonnage.cli.main import main
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES
from tonnage.kube.protocol import Object

Ask = Callable[..., tuple[int, str]]


def infd(name: str, spec: Object) -> Object:
    return {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


@pytest.fixture
def ask(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Ask:
    """Exit code and output of `plan` for objects on nodes of two accelerators."""

    def run(*bodies: Object, groups: tuple[Object, ...] = (MI300X, L40S), more: tuple[str, ...]):
        nodes, wanted = tmp_path / "nodes.yaml", tmp_path / "wanted.yaml"
        dump(Cluster(*groups).api, nodes, [NODES])
        wanted.write_text(yaml.safe_dump_all(bodies), "utf-8")
        code = main(["plan", "-f", str(wanted), "--nodes", str(nodes), *more])
        return code, capsys.readouterr().out

    return run


def items(answer: str) -> dict[str, Object]:
    return {item["name"]: item for item in json.loads(answer)["items"]}


def test_both_endpoints_are_planned_of_one_file(ask: Ask) -> None:
    code, answer = ask(infd("llama", apart()), more=("-o", "json"))
    planned = items(answer)
    assert code == 0
    assert list(planned) == ["llama", LONG]
    pools = {name: item["status"]["placements"][0]["pool"] for name, item in planned.items()}
    assert pools == {"llama": "nvidia-l40s", LONG: "amd-mi300x"}
    kinds = [body["kind"] for body in planned["llama"]["manifests"]]
    assert kinds == ["Service", "Deployment", "InferenceDeployment"]
    assert "ownerReferences" not in planned["llama"]["manifests"][-1]["metadata"]


def test_the_table_says_where_requests_go(ask: Ask) -> None:
    _, answer = ask(infd("llama", apart()), more=())
    assert "long requests (up to 131,072 tokens): Service llama-long" in answer
    assert f"{NAMESPACE}/{LONG}" in answer


def test_an_endpoint_without_capacity_ends_with_3(ask: Ask) -> None:
    tight = apart({"inputTokens": 120_000, "concurrency": 11})
    tight["placement"] = {"accelerators": ["l40s"]}
    tight["scaling"] = {"maxReplicas": 1}
    few: Object = {**L40S, "gpusPerNode": 1}
    code, answer = ask(infd("llama", tight), groups=(few,), more=("-o", "json"))
    assert code == 3
    placed = {
        name: next(c["status"] for c in item["status"]["conditions"] if c["type"] == "Placed")
        for name, item in items(answer).items()
    }
    assert placed == {"llama": "True", LONG: "False"}


def test_a_taken_name_is_a_conflict_and_the_other_object_is_planned_unchanged(ask: Ask) -> None:
    bodies = (infd("llama", apart()), infd(LONG, spec_of(replicas=2)))
    _, answer = ask(*bodies, more=("-o", "json"))
    planned = items(answer)
    assert sorted(planned) == ["llama", LONG]
    accepted = planned["llama"]["status"]["conditions"][0]
    assert (accepted["status"], accepted["reason"]) == ("False", "NameConflict")
    assert planned[LONG]["status"]["desiredReplicas"] == 2


def live(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, *module: object) -> None:
    connect_to(monkeypatch, cluster.api, *module)


def test_running_endpoints_do_not_change_and_an_approval_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = asyncio.run(served_apart())
    live(cluster, monkeypatch, plan)
    wanted = tmp_path / "wanted.yaml"
    for spec, want in ((apart(), 0), (apart({"concurrency": 5}), 1), (together(), 1)):
        wanted.write_text(yaml.safe_dump(infd("llama", spec)), "utf-8")
        assert main(["plan", "-f", str(wanted), "--diff"]) == want
    assert f"live/InferenceDeployment/{NAMESPACE}/{LONG}" in capsys.readouterr().out


def test_fields_that_users_wrote_are_part_of_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = asyncio.run(served_apart())
    body = cluster.inference_deployment(LONG)
    body["spec"]["replicas"] = 3
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    live(cluster, monkeypatch, plan)
    wanted = tmp_path / "wanted.yaml"
    wanted.write_text(yaml.safe_dump(infd("llama", apart({"concurrency": 5}))), "utf-8")
    assert main(["plan", "-f", str(wanted), "-o", "json"]) == 0
    assert items(capsys.readouterr().out)[LONG]["status"]["desiredReplicas"] == 3


def test_explain_names_both_endpoints_and_why_one_is_not_ready(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = two_cards()
    cluster.behaviours[LONG] = loading
    cluster.apply("llama", apart())
    asyncio.run(cluster.settle())
    live(cluster, monkeypatch, explain)
    assert main(["explain", "llama"]) == 0
    output = capsys.readouterr().out
    assert "InferenceDeployment llama: ready" in output
    assert "InferenceDeployment llama-long: not ready: ContainersNotReady" in output
    assert main(["explain", LONG]) == 0
    assert "pool amd-mi300x" in capsys.readouterr().out


def test_one_placement_is_not_optimised_for_two_endpoints(ask: Ask) -> None:
    pytest.importorskip("scipy")
    bodies = (infd("llama", apart()), infd("qwen", spec_of()))
    _, answer = ask(*bodies, more=("--optimize", "-o", "json"))
    assert {planned["name"] for planned in json.loads(answer)["optimized"]["objects"]} == {"qwen"}
