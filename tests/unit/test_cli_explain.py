"""`tonnage explain`: the road of one object, told from a cluster or a dump of it."""

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
from tonnage.cli import explain as explain_module
from tonnage.cli.main import main
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, PODS


@pytest.fixture
def explain(capsys, monkeypatch):
    """What `explain` prints of a cluster."""

    def run(cluster, name="llama", *more):
        connect_to(monkeypatch, cluster.api, explain_module)
        assert main(["explain", name, *more]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def sections(text):
    """The indented lines of each section by its heading."""
    found, heading = {}, ""
    for line in text.splitlines():
        if line and not line.startswith(" "):
            heading = line
        elif line:
            found.setdefault(heading, []).append(line.strip())
    return found


def test_the_story_of_what_serves_goes_from_the_model_to_nothing_left_to_do(explain):
    told = sections(explain(asyncio.run(served(MI300X, H100, replicas=2))))
    assert list(told) == [
        *("chat/llama (generation 1)", "Model", "Fleet", "Pools judged", "Runs"),
        *("Measured by vLLM", "Next"),
    ]
    assert told["chat/llama (generation 1)"][0].startswith("Ready=True ReplicasReady")
    assert told["Model"][0].startswith("Accepted=True Valid: LlamaForCausalLM")
    assert "policy LowestCost" in told["Model"][1]
    assert [line.split()[0] for line in told["Fleet"][1:]] == ["amd-mi300x", "nvidia-h100-sxm-80gb"]
    assert told["Pools judged"][0].startswith("Placed=True PoolChosen")
    assert told["Runs"][0].startswith("pool amd-mi300x (mi300x, TP 1): 2 of 2 replicas ready")
    assert told["Measured by vLLM"] == [
        "mi300x: nothing is known yet: neither a Prometheus nor the pods have told"
    ]
    assert told["Next"] == ["nothing is left to do: the replicas stay where they are"]


def test_what_vllm_measured_is_set_against_what_was_predicted(explain):
    cluster = asyncio.run(served(MI300X))
    body = cluster.inference_deployment()
    (placement,) = body["status"]["placements"]
    placement["kvCacheTokens"], placement["measuredKvCacheTokens"] = 1000, 1_200_000
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    (told,) = sections(explain(cluster))["Measured by vLLM"]
    assert told.startswith("mi300x: 1,200,000 tokens of KV cache a replica, ")
    assert told.endswith(" predicted")


def test_an_object_that_nobody_has_looked_at_is_told_what_will_happen(explain):
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of())
    told = sections(explain(cluster))
    assert "chat/llama (generation 1, reported: none yet)" in told
    assert told["Runs"][-1] == "no pod yet"
    assert told["Next"] == [
        "the operator has reported on nothing yet and will on 1",
        "the operator is about to apply Deployment llama-mi300x",
        "the operator is about to apply Service llama",
    ]


def test_a_failing_pod_is_told_with_its_cause_from_its_log(explain):
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = crashing()
    cluster.apply("llama", spec_of())
    asyncio.run(cluster.settle())
    (pod,) = cluster.pods()
    log = "SafetensorError: Error while deserializing header: incomplete metadata\n"
    cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], VLLM_CONTAINER, log, previous=True)
    told = sections(explain(cluster))
    assert told["chat/llama (generation 1)"][0].endswith("incomplete metadata")
    assert "nothing gets better by itself: see why it is CrashLooping" in told["Next"]


def test_a_pause_is_told_as_what_somebody_has_to_end(explain):
    cluster = asyncio.run(served(MI300X))
    cluster.apply("llama", spec_of(rollout={"paused": True}))
    asyncio.run(cluster.settle())
    assert any(
        "somebody has to end the pause" in step for step in sections(explain(cluster))["Next"]
    )


def test_who_waits_for_gpus_is_told_so(explain):
    cluster = Cluster(dict(MI300X, gpusPerNode=1, count=1))
    cluster.occupy("mi300x-0", 1)
    cluster.apply("llama", spec_of())
    asyncio.run(cluster.settle())
    assert "the operator looks again when GPUs become free" in sections(explain(cluster))["Next"]


def test_a_status_that_is_older_than_what_is_there_is_told(explain):
    cluster = asyncio.run(served(MI300X))
    body = cluster.inference_deployment()
    body["status"]["placements"][0]["replicas"] = 7
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    (told,) = sections(explain(cluster))["Next"]
    assert told.startswith("the status that the operator wrote is older than what is there now")


@pytest.mark.parametrize("name", ["infd/llama", "inferencedeployments.tonnage.dev/llama"])
def test_the_object_can_be_named_as_kubectl_does(explain, name):
    assert explain(asyncio.run(served(MI300X)), name).startswith("chat/llama ")


def test_a_child_stands_for_its_object(explain):
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
def test_what_cannot_be_explained_ends_with_2(capsys, monkeypatch, name, want):
    cluster = asyncio.run(served(MI300X))
    cluster.occupy("mi300x-0", 1)
    connect_to(monkeypatch, cluster.api, explain_module)
    assert main(["explain", name]) == 2
    assert want in capsys.readouterr().err


def test_an_invalid_spec_is_explained_and_not_refused(explain):
    cluster = Cluster(MI300X)
    cluster.apply("llama", spec_of(workload={"maxModelLen": 0}))
    told = sections(explain(cluster))
    assert told["Model"][0].startswith("Accepted=False InvalidSpec: spec.workload.maxModelLen")


def test_a_dump_tells_what_the_cluster_does(explain, tmp_path):
    cluster = asyncio.run(served(MI300X, H100))
    flags = ["-n", NAMESPACE, "--nodes", dump(cluster.api, tmp_path / "whole.yaml")]
    assert explain(Cluster(), "llama", *flags) == explain(cluster)


def test_a_dump_of_the_objects_nodes_and_pods_is_enough(explain, tmp_path):
    cluster = asyncio.run(served(MI300X, H100))
    few = dump(cluster.api, tmp_path / "few.yaml", [NODES, PODS, INFERENCE_DEPLOYMENTS])
    assert explain(Cluster(), "llama", "-n", NAMESPACE, "--nodes", few) == explain(cluster)


def test_what_became_of_an_inference_pool_is_told(explain):
    cluster = asyncio.run(served(MI300X))
    picker = {"name": "epp", "port": {"number": 9002}}
    gateway = {"inferencePool": {"endpointPickerRef": picker}}
    cluster.apply("llama", spec_of(gateway=gateway))
    asyncio.run(cluster.settle())
    (head, *_) = sections(explain(cluster)).values()
    assert any(line.startswith("InferencePoolApplied=True Applied") for line in head)


def test_programs_get_the_same_as_json_and_yaml(explain):
    cluster = asyncio.run(served(MI300X, replicas=2))
    told = json.loads(explain(cluster, "llama", "-o", "json"))
    assert told == yaml.safe_load(explain(cluster, "llama", "-o", "yaml"))
    assert told["status"] == cluster.status()
    assert (told["generation"], told["reportedGeneration"]) == (1, 1)
    assert [pool["name"] for pool in told["fleet"]] == ["amd-mi300x"]
    assert [(pod["ready"], pod["gpus"], pod["message"]) for pod in told["pods"]] == [
        *((True, 1, ""), (True, 1, ""))
    ]
    assert told["next"][0]["when"] is None
