"""`tonnage plan` for replicas on several nodes: which kinds a cluster in files has."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.fleets.gpu_nodes import H100, nvidia_node
from tests.support.in_memory.cluster import spec_of
from tonnage.api.names import API_VERSION
from tonnage.cli.main import main

DEEPSEEK = {
    "apiVersion": API_VERSION,
    "kind": "InferenceDeployment",
    "metadata": {"name": "deepseek"},
    "spec": spec_of("deepseek-v3"),
}
RACK = {
    "apiVersion": API_VERSION,
    "kind": "AcceleratorPool",
    "metadata": {"name": "rack"},
    "spec": {"nodeSelector": {"team": "a"}, "interconnect": {"computeDomain": True}},
}
LABELS = H100 | {"team": "a", "nvidia.com/gpu.clique": "a.1"}

Answer = dict[str, Any]


def write(path: Path, *bodies: object) -> str:
    path.write_text(yaml.safe_dump_all(bodies), "utf-8")
    return str(path)


def plan(folder: Path, capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, Answer]:
    """Exit code and plan of the object on a rack of two nodes."""
    nodes = [nvidia_node(f"n{number}", LABELS) for number in range(2)]
    fleet = write(folder / "nodes.yaml", RACK, *nodes)
    command = ["plan", "-f", write(folder / "infd.yaml", DEEPSEEK), "--nodes", fleet, *flags]
    code = main([*command, "-o", "json"])
    (planned,) = json.loads(capsys.readouterr().out)["items"]
    return code, planned


def test_a_cluster_in_files_has_compute_domains_and_leader_worker_sets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, planned = plan(tmp_path, capsys)
    (placement,) = planned["status"]["placements"]
    assert (code, placement["nodesPerReplica"]) == (0, 2)
    manifests = {body["kind"]: body for body in planned["manifests"]}
    name = manifests["ComputeDomain"]["spec"]["channel"]["resourceClaimTemplate"]["name"]
    template = manifests["LeaderWorkerSet"]["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        (claim,) = template[role]["spec"]["resourceClaims"]
        assert claim["resourceClaimTemplateName"] == name


@pytest.mark.parametrize(
    ("flag", "want_reason", "want_message"),
    [
        (
            "--without-compute-domains",
            "NoInterconnect",
            "spec.interconnect.computeDomain of AcceleratorPool rack needs ComputeDomains",
        ),
        ("--without-leaderworkerset", "WorkloadKindMissing", "kubectl apply --server-side -f"),
    ],
)
def test_a_cluster_without_a_kind_runs_no_replica_on_several_nodes(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    flag: str,
    want_reason: str,
    want_message: str,
) -> None:
    code, planned = plan(tmp_path, capsys, flag)
    (candidate,) = planned["status"]["candidates"]
    assert (code, candidate["reason"]) == (3, want_reason)
    assert want_message in candidate["message"]
    kinds = {body["kind"] for body in planned["manifests"]}
    assert not kinds & {"ComputeDomain", "LeaderWorkerSet"}


def test_a_group_that_runs_stays_though_the_operator_lost_the_permission(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its LeaderWorkerSet is in the file of the cluster."""
    _, planned = plan(tmp_path, capsys)
    running = [stored(body) for body in planned["manifests"] if body["kind"] != "ComputeDomain"]
    fleet = yaml.safe_load_all((tmp_path / "nodes.yaml").read_text("utf-8"))
    live = {**DEEPSEEK, "metadata": {"name": "deepseek", "namespace": "default", "uid": "1"}}
    cluster = write(tmp_path / "cluster.yaml", *fleet, live, *running)
    files = ["-f", str(tmp_path / "infd.yaml"), "--nodes", cluster]
    code = main(["plan", *files, "--without-compute-domains", "-o", "json"])
    (planned,) = json.loads(capsys.readouterr().out)["items"]
    (placement,) = planned["status"]["placements"]
    assert (code, placement["nodesPerReplica"]) == (0, 2)


def stored(body: Answer) -> Answer:
    """The child as the API server has it, whose owner was the object."""
    owner = {"kind": "InferenceDeployment", "name": "deepseek", "uid": "1", "controller": True}
    metadata = body["metadata"] | {
        "uid": f"{body['kind']}-1",
        "resourceVersion": "1",
        "ownerReferences": [owner],
    }
    return body | {"metadata": metadata}
