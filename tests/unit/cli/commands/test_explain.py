"""`tonnage explain`: the explanation of one object, from a cluster or a dump of it."""

import asyncio
import json
from datetime import timedelta

import pytest
import yaml

from tests.support.api_server.live_fake import connect_to
from tests.support.fleets.dra_objects import AMD, claim
from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import crashing
from tests.support.in_memory.dumps import dump
from tests.support.in_memory.jobs import downloading
from tests.support.in_memory.serving import served
from tests.support.in_memory.weights import cached_spec, on_hub
from tests.support.load.startup_logs import REQUESTED, bar, log_of, step
from tonnage.checkpoint.lookup import HubLookup
from tonnage.cli.commands import explain as explain_module
from tonnage.cli.main import main
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, NODES, PODS, RESOURCE_CLAIMS
from tonnage.kube.protocol import ForbiddenError
from tonnage.reconcile.observation.findings import format_age
from tonnage.workloads.weights_job import POD_NAME


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
    cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], "vllm", log, previous=True)
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


def test_the_claims_of_the_pods_are_shown_with_their_devices(explain):
    cluster = asyncio.run(served(MI300X))
    (pod,) = cluster.pods()
    uid = pod["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"], "uid": uid}
    held = claim("held", "mi300x-0", ["gpu-1-129"], driver=AMD, pods=[uid])
    waiting = {**claim("waiting", "mi300x-0", []), "status": {}}
    foreign = claim("foreign", "mi300x-0", ["gpu-2-130"], driver=AMD, pods=["another"])
    channel = claim("channel", "mi300x-0", ["channel-0"], driver="fabric.example.com", pods=[uid])
    shared = claim("shared", "mi300x-0", ["gpu-1-129"], driver=AMD, pods=[uid], admin=True)
    owned = (held, waiting, channel)
    for body, owners in (*((body, [owner]) for body in owned), (shared, []), (foreign, [])):
        body["metadata"]["ownerReferences"] = owners
        cluster.api.put(RESOURCE_CLAIMS, body)
    runs = sections(explain(cluster))["Runs"]
    names = ("held", "waiting", "foreign", "channel", "shared")
    rows = [line.split(maxsplit=3) for line in runs if line.startswith(names)]
    name = pod["metadata"]["name"]
    assert rows == [
        ["channel", name, "allocated", "fabric.example.com/mi300x-0/channel-0"],
        ["held", name, "allocated", "gpu.amd.com/mi300x-0/gpu-1-129"],
        ["shared", name, "allocated", "gpu.amd.com/mi300x-0/gpu-1-129 (admin access)"],
        ["waiting", name, "pending", "-"],
    ]
    data = json.loads(explain(cluster, "llama", "-o", "json"))
    assert data["claims"][1] == {
        "name": "held",
        "pod": name,
        "state": "allocated",
        "devices": ["gpu.amd.com/mi300x-0/gpu-1-129"],
    }


def test_without_claims_none_are_shown(explain):
    cluster = asyncio.run(served(MI300X))
    assert "CLAIM" not in explain(cluster)
    assert "claims" not in json.loads(explain(cluster, "llama", "-o", "json"))


def loading(replicas=1):
    """A cluster whose replicas have loaded 12 of 30 files of weights."""
    cluster = Cluster(MI300X)
    cluster.behaviours["llama"] = step(true=["PodReadyToStartContainers", "Initialized"])
    cluster.apply("llama", spec_of(replicas=replicas))
    asyncio.run(cluster.settle())
    for pod in cluster.pods():
        log = log_of(REQUESTED, bar(12), start=cluster.clock.now())
        cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], "vllm", log)
    return cluster


def rows_of_starts(text):
    """The lines of the table of starting pods, without the age."""
    lines = sections(text)["Runs"]
    first = next(number for number, line in enumerate(lines) if line.startswith("START"))
    return lines[first + 1 :]


def test_a_bar_shows_how_much_of_the_weights_is_loaded(explain):
    cluster = loading(replicas=2)
    rows = rows_of_starts(explain(cluster))
    names = [pod["metadata"]["name"] for pod in cluster.pods()]
    assert [row.split()[:2] for row in rows] == [[name, "Loading"] for name in names]
    assert all(
        row.endswith("████████░░░░░░░░░░░░ 40 %, 12 of 30 files, about 54s left") for row in rows
    )
    assert "\x1b" not in "".join(rows)


def test_a_replica_is_shown_from_its_first_second_on_and_all_logs_are_read(explain):
    cluster = loading(replicas=8)
    assert len(rows_of_starts(explain(cluster))) == 8


def test_programs_get_the_phase_and_the_percentage(explain):
    cluster = loading()
    (pod,) = json.loads(explain(cluster, "llama", "-o", "json"))["pods"]
    assert pod["start"] == {
        "phase": "Loading",
        "since": "2026-01-01T00:00:01Z",
        "loadedFiles": 12,
        "files": 30,
        "percent": 40,
        "remainingSeconds": 54,
    }
    serving = json.loads(explain(asyncio.run(served(MI300X)), "llama", "-o", "json"))
    assert "start" not in serving["pods"][0]


def test_without_the_right_to_read_logs_the_phase_is_that_of_the_pod(explain):
    cluster = loading()
    cluster.api.fail_next("pod_log", ForbiddenError("403"), times=9)
    (row,) = rows_of_starts(explain(cluster))
    assert row.split()[1] == "Starting"


def test_a_dump_shows_the_phase_of_the_pod(explain, tmp_path):
    flags = ["-n", NAMESPACE, "--nodes", dump(loading().api, tmp_path / "whole.yaml")]
    (row,) = rows_of_starts(explain(Cluster(), "llama", *flags))
    assert row.split()[1] == "Starting"


def test_a_download_names_the_size_and_no_share_of_it(explain):
    cluster = loading()
    (pod,) = cluster.pods()
    log = log_of(REQUESTED, start=cluster.clock.now())
    cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], "vllm", log)
    (row,) = rows_of_starts(explain(cluster))
    assert row.split()[1] == "Downloading"
    assert row.endswith("15.0 GiB of weights; the log does not say how much is there")
    assert "%" not in row


def downloading_job(log):
    """A cluster whose Job downloads the weights, and has this log."""
    cluster = on_hub(MI300X)
    cluster.behaviours[POD_NAME] = downloading
    cluster.apply("llama", cached_spec())
    asyncio.run(cluster.settle())
    (pod,) = cluster.api.objects(PODS)
    cluster.api.set_log(NAMESPACE, pod["metadata"]["name"], "download", log)
    return cluster


@pytest.fixture
def explain_download(explain, monkeypatch):
    """The output of `explain` on a cluster with a Job that has this log."""

    def run(log, *more):
        cluster = downloading_job(log)
        hub = HubLookup(lambda source, token: cluster.hub.answer, cluster.hub.lookup_adapter)
        monkeypatch.setattr(explain_module, "make_user_hub_lookup", lambda *_: hub)
        return explain(cluster, "llama", *more)

    return run


HALF = f"progress: {4 * 2**30} of {16 * 2**30} bytes, {2 * 2**30} of them in 60 s\n"


def test_a_bar_shows_how_much_of_the_weights_the_job_has_downloaded(explain_download):
    (row,) = rows_of_starts(explain_download(HALF))
    assert row.split()[1] == "Downloading"
    assert row.endswith("█████░░░░░░░░░░░░░░░ 25 %, 4.0 of 16.0 GiB, about 6m0s left")


def test_a_job_that_says_nothing_has_no_bar(explain_download):
    (row,) = rows_of_starts(explain_download("Fetching 30 files"))
    assert "%" not in row


def test_programs_get_the_bytes_of_a_download(explain_download):
    download = json.loads(explain_download(HALF, "-o", "json"))["download"]
    assert download.pop("job").startswith("llama-")
    assert download == {
        "since": "2026-01-01T00:00:00Z",
        "bytes": 4 * 2**30,
        "totalBytes": 16 * 2**30,
        "percent": 25,
        "remainingSeconds": 360,
    }


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(-5, "0s"), (0, "0s"), (59, "59s"), (60, "1m0s"), (190, "3m10s"), (3725, "1h2m")],
)
def test_ages_have_two_units_at_most(seconds, want):
    assert format_age(timedelta(seconds=seconds)) == want
