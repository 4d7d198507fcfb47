"""`tonnage explain`: the explanation of one object, from a cluster or a dump of it."""

import asyncio
import json

import pytest
import yaml

from tests.support.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.controllers import crashing
from tests.support.dumps import dump
from tests.support.live_fake import connect_to
from tests.support.serving import served
from tonnage.api.names import VLLM_CONTAINER
from tonnage.cli.commands import explain as explain_module
from tonnage.cli.main import main
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, PODS


@pytest.fixture
def explain(capsys, monkeypatch):
    """The output of `explain` on a cluster."""

    def run(cluster, name="llama", *more):
        connect_to(monkeypatch, cluster.api, explain_module)
        assert main(["explain", name, *more]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def sections(text):
    """The indented lines of each section by its heading."""
    lines_by_heading, heading = {}, ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            heading = line
        elif line:
            lines_by_heading.setdefault(heading, []).append(line.strip())
    return lines_by_heading


def test_a_serving_object_is_explained_from_its_model_to_the_next_steps(explain):
    shown = sections(explain(asyncio.run(served(MI300X, H100, replicas=2))))
    assert list(shown) == [
        *("chat/llama (generation 1)", "Model", "Fleet", "Pools judged", "Runs"),
        *("Measured by vLLM", "Next"),
    ]
    assert shown["chat/llama (generation 1)"][0].startswith("Ready=True ReplicasReady")
    assert shown["Model"][0].startswith("Accepted=True Valid: LlamaForCausalLM")
    assert "policy LowestCost" in shown["Model"][1]
    assert [line.split()[0] for line in shown["Fleet"][1:]] == [
        "amd-mi300x",
        "nvidia-h100-sxm-80gb",
    ]
    assert shown["Pools judged"][0].startswith("Placed=True PoolChosen")
    assert shown["Runs"][0].startswith("pool amd-mi300x (mi300x, TP 1): 2 of 2 replicas ready")
    assert shown["Measured by vLLM"] == [
        "mi300x: not measured yet: neither Prometheus nor the pods have reported the KV cache"
    ]
    assert shown["Next"] == ["nothing is left to do: the replicas stay where they are"]


def test_the_measured_kv_cache_is_compared_with_the_predicted_one(explain):
    cluster = asyncio.run(served(MI300X))
    body = cluster.inference_deployment()
    (placement,) = body["status"]["placements"]
    placement["kvCacheTokens"], placement["measuredKvCacheTokens"] = 1000, 1_200_000
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    (shown,) = sections(explain(cluster))["Measured by vLLM"]
    assert shown.startswith("mi300x: 1,200,000 tokens of KV cache a replica, ")
    assert shown.endswith(" predicted")


def test_an_object_that_was_never_reconciled_shows_what_will_happen(explain):
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    shown = sections(explain(cluster))
    assert "chat/llama (generation 1, reported: none yet)" in shown
    assert shown["Runs"][-1] == "no pod yet"
    assert shown["Next"] == [
        "the operator has reported on no generation and will on 1",
        "the operator is about to apply Deployment llama-mi300x",
        "the operator is about to apply Service llama",
    ]


def test_a_failing_pod_shows_its_cause_from_the_log(explain):
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = crashing()
    cluster.apply("llama", spec_of())
    asyncio.run(cluster.settle())
    (pod,) = cluster.pods()
    log = "SafetensorError: Error while deserializing header: incomplete metadata\n"
    cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], VLLM_CONTAINER, log, previous=True)
    shown = sections(explain(cluster))
    assert shown["chat/llama (generation 1)"][0].endswith("incomplete metadata")
    assert "stalled (CrashLooping) until the spec or the cluster changes" in shown["Next"]


def test_a_pause_says_that_a_user_must_end_it(explain):
    cluster = asyncio.run(served(MI300X))
    cluster.apply("llama", spec_of(rollout={"paused": True}))
    asyncio.run(cluster.settle())
    assert any("a user must end the pause" in step for step in sections(explain(cluster))["Next"])


def test_an_object_that_waits_for_gpus_says_so(explain):
    cluster = Cluster(dict(MI300X, gpusPerNode=1, count=1))
    cluster.occupy("mi300x-0", 1)
    cluster.apply("llama", spec_of())
    asyncio.run(cluster.settle())
    assert "the operator reconciles when GPUs become free" in sections(explain(cluster))["Next"]


def test_an_outdated_status_is_reported(explain):
    cluster = asyncio.run(served(MI300X))
    body = cluster.inference_deployment()
    body["status"]["placements"][0]["replicas"] = 7
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    (shown,) = sections(explain(cluster))["Next"]
    assert shown.startswith("the reported status is out of date")


@pytest.mark.parametrize("name", ["infd/llama", "inferencedeployments.tonnage.dev/llama"])
def test_the_object_can_be_named_as_kubectl_does(explain, name):
    assert explain(asyncio.run(served(MI300X)), name).startswith("chat/llama ")


def test_a_child_resolves_to_its_object(explain):
    cluster = asyncio.run(served(MI300X))
    (pod,) = cluster.pods()
    for name in (f"pod/{pod['metadata']['name']}", "deploy/llama-mi300x", "svc/llama"):
        assert explain(cluster, name).startswith("chat/llama ")


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("nope", "InferenceDeployment chat/nope not found"),
        ("deploy/nope", "Deployment chat/nope not found"),
        ("pod/other-mi300x-0", "Pod chat/other-mi300x-0 not found"),
        ("job/x", "job/x: 'job' is none of the kinds that can be explained: infd, deploy"),
    ],
)
def test_an_object_that_cannot_be_explained_ends_with_2(capsys, monkeypatch, name, want):
    cluster = asyncio.run(served(MI300X))
    cluster.occupy("mi300x-0", 1)
    connect_to(monkeypatch, cluster.api, explain_module)
    assert main(["explain", name]) == 2
    assert want in capsys.readouterr().err


def test_an_invalid_spec_is_explained_and_not_refused(explain):
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(workload={"maxModelLen": 0}))
    shown = sections(explain(cluster))
    assert shown["Model"][0].startswith("Accepted=False InvalidSpec: spec.workload.maxModelLen")


def test_a_dump_gives_the_same_explanation_as_the_cluster(explain, tmp_path):
    cluster = asyncio.run(served(MI300X, H100))
    flags = ["-n", NAMESPACE, "--nodes", dump(cluster.api, tmp_path / "whole.yaml")]
    assert explain(Cluster(), "llama", *flags) == explain(cluster)


def test_a_dump_of_the_objects_nodes_and_pods_is_enough(explain, tmp_path):
    cluster = asyncio.run(served(MI300X, H100))
    few = dump(cluster.api, tmp_path / "few.yaml", [NODES, PODS, INFERENCE_DEPLOYMENTS])
    assert explain(Cluster(), "llama", "-n", NAMESPACE, "--nodes", few) == explain(cluster)


def test_the_condition_of_an_inference_pool_is_shown(explain):
    cluster = asyncio.run(served(MI300X))
    picker = {"name": "epp", "port": {"number": 9002}}
    gateway = {"inferencePool": {"endpointPickerRef": picker}}
    cluster.apply("llama", spec_of(gateway=gateway))
    asyncio.run(cluster.settle())
    (head, *_) = sections(explain(cluster)).values()
    assert any(line.startswith("InferencePoolApplied=True Applied") for line in head)


def test_programs_get_the_same_as_json_and_yaml(explain):
    cluster = asyncio.run(served(MI300X, replicas=2))
    shown = json.loads(explain(cluster, "llama", "-o", "json"))
    assert shown == yaml.safe_load(explain(cluster, "llama", "-o", "yaml"))
    assert shown["status"] == cluster.status()
    assert (shown["generation"], shown["reportedGeneration"]) == (1, 1)
    assert [pool["name"] for pool in shown["fleet"]] == ["amd-mi300x"]
    assert [(pod["ready"], pod["gpus"], pod["message"]) for pod in shown["pods"]] == [
        *((True, 1, ""), (True, 1, ""))
    ]
    assert shown["next"][0]["when"] is None
