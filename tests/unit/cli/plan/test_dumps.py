"""`tonnage plan` on dumps of a cluster in which the operator runs already."""

import asyncio
import copy
import json
from pathlib import Path

import pytest
import yaml

from tests.support.in_memory.cluster import H100, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.controllers import run_deployments
from tests.support.in_memory.dumps import dump
from tests.support.in_memory.serving import served
from tonnage.cli.main import main
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)

MI300X_POOL = {"amd.com/gpu.device-id": "74a1"}


@pytest.fixture
def plan(tmp_path, capsys):
    """Run `plan` with these arguments; the items by name."""

    def run(*argv, code=0):
        assert main(["plan", *argv, "-o", "json"]) == code, capsys.readouterr().err
        return {item["name"]: item for item in json.loads(capsys.readouterr().out)["items"]}

    return run


def write(tmp_path, name, *bodies):
    path = tmp_path / name
    path.write_text(yaml.safe_dump_all(bodies))
    return str(path)


def git_file(tmp_path, name="llama", **spec):
    """The object as in a Git repository."""
    body = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "InferenceDeployment",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec_of(**spec),
    }
    return write(tmp_path, f"{name}.yaml", body)


def parts(cluster, tmp_path, *, objects=True):
    """The flags with one dump for each kind."""
    kinds = {"--nodes": NODES, "--pods": PODS, "--pools": ACCELERATOR_POOLS}
    words = ["-f", dump(cluster.api, tmp_path / "infd.yaml", [INFERENCE_DEPLOYMENTS])]
    for flag, kind in kinds.items():
        words += [flag, dump(cluster.api, tmp_path / f"{kind.plural}.yaml", [kind])]
    return words if objects else words[2:]


def whole(cluster, tmp_path):
    return ["--nodes", dump(cluster.api, tmp_path / "whole.yaml")]


def assert_as_written(cluster, item, name="llama"):
    """Assert that status and children equal those that the operator has written."""
    assert item["status"] == cluster.status(name)
    stored = {
        (body["kind"], body["metadata"]["name"]): body
        for kind in (SERVICES, DEPLOYMENTS, POD_DISRUPTION_BUDGETS)
        for body in cluster.api.objects(kind)
        if body["metadata"]["labels"]["tonnage.dev/inferencedeployment"] == name
    }
    children = [(body["kind"], body["metadata"]["name"]) for body in item["manifests"]]
    assert sorted(children) == sorted(stored)
    for manifest in item["manifests"]:
        live = copy.deepcopy(stored[manifest["kind"], manifest["metadata"]["name"]])
        live.pop("status", None)
        for key in ("uid", "resourceVersion", "generation", "creationTimestamp"):
            live["metadata"].pop(key)
        assert manifest == live


def test_three_dumps_of_a_running_object_give_its_status(tmp_path, plan):
    cluster = asyncio.run(served(MI300X, H100, replicas=2))
    assert_as_written(cluster, plan(*parts(cluster, tmp_path))["llama"])


def test_one_dump_gives_the_status_too(tmp_path, plan):
    cluster = asyncio.run(served(MI300X, H100, replicas=2))
    objects = ["-f", dump(cluster.api, tmp_path / "infd.yaml", [INFERENCE_DEPLOYMENTS])]
    assert_as_written(cluster, plan(*objects, *whole(cluster, tmp_path))["llama"])


@pytest.mark.parametrize("dumped", [parts, whole], ids=["three dumps", "one dump"])
def test_replicas_on_several_pools_are_restored_on_all_of_them(tmp_path, plan, dumped):
    spread = {"replicas": 4, "placement": {"spread": {"policy": "WhenShort"}}}
    groups = (dict(MI300X, gpusPerNode=2), dict(H100, gpusPerNode=2))
    cluster = asyncio.run(served(*groups, **spread))
    words = dumped(cluster, tmp_path)
    if dumped is whole:
        words = ["-f", git_file(tmp_path, **spread), *words]
    item = plan(*words)["llama"]
    assert item["status"] == cluster.status()
    children = {(body["kind"], body["metadata"]["name"]) for body in item["manifests"]}
    names = ("llama-mi300x", "llama-h100-sxm-80gb")
    services = {("Service", "llama"), *(("Service", name) for name in names)}
    budget = {("PodDisruptionBudget", "llama")}
    assert children == services | budget | {("Deployment", name) for name in names}


def test_a_manifest_from_git_is_the_object_of_the_dump(tmp_path, plan):
    cluster = asyncio.run(served(MI300X, H100, replicas=2))
    objects = ["-f", git_file(tmp_path, replicas=2)]
    assert_as_written(cluster, plan(*objects, *whole(cluster, tmp_path))["llama"])


def test_running_replicas_stay_although_another_pool_is_cheaper_by_now(tmp_path, plan):
    cluster = asyncio.run(served(H100, replicas=1))
    cluster.join(**MI300X)
    asyncio.run(cluster.settle())
    for words in (
        parts(cluster, tmp_path),
        ["-f", git_file(tmp_path), *parts(cluster, tmp_path, objects=False)],
        ["-f", git_file(tmp_path), *whole(cluster, tmp_path)],
    ):
        (placement,) = plan(*words)["llama"]["status"]["placements"]
        assert placement["accelerator"] == "h100-sxm-80gb"
    fresh = ["-f", git_file(tmp_path), "--nodes", dump(cluster.api, tmp_path / "n.yaml", [NODES])]
    (placement,) = plan(*fresh)["llama"]["status"]["placements"]
    assert placement["accelerator"] == "mi300x"


def test_its_own_pods_leave_it_the_gpus_that_they_hold(tmp_path, plan):
    cluster = asyncio.run(served(dict(MI300X, gpusPerNode=2, count=1), replicas=2))
    item = plan("-f", git_file(tmp_path, replicas=2), *parts(cluster, tmp_path, objects=False))
    assert item["llama"]["status"]["placements"][0]["replicas"] == 2
    other = git_file(tmp_path, "other", replicas=1)
    item = plan("-f", other, *parts(cluster, tmp_path, objects=False), code=3)
    assert item["other"]["status"]["placements"] == []


def test_replicas_that_are_still_to_be_scheduled_hold_their_gpus_too(tmp_path, plan):
    cluster = Cluster(dict(MI300X, gpusPerNode=2, count=1))
    cluster.apply("llama", spec_of(replicas=2))
    asyncio.run(cluster.reconcile("llama"))  # the Deployment is there, its pods are not
    other = git_file(tmp_path, "other", replicas=1)
    item = plan("-f", other, *whole(cluster, tmp_path), code=3)
    assert item["other"]["status"]["placements"] == []


def test_another_spec_is_another_generation(tmp_path, plan):
    cluster = asyncio.run(served(MI300X, replicas=1))
    status = plan("-f", git_file(tmp_path, replicas=3), *whole(cluster, tmp_path))["llama"][
        "status"
    ]
    assert status["observedGeneration"] == 2
    assert status["placements"][0]["replicas"] == 3
    same = plan("-f", git_file(tmp_path, replicas=1), *whole(cluster, tmp_path))["llama"]["status"]
    assert same["observedGeneration"] == 1


def test_whole_numbers_count_as_the_api_server_writes_them(tmp_path, plan):
    cluster = Cluster(MI300X)
    spec = spec_of()
    spec["model"]["source"]["inline"]["config"]["rope_theta"] = 500000
    cluster.apply("llama", spec)
    asyncio.run(cluster.settle())
    spec["model"]["source"]["inline"]["config"]["rope_theta"] = 500000.0
    body = cluster.inference_deployment() | {"spec": spec}
    body["metadata"] = {"name": "llama", "namespace": NAMESPACE}
    del body["status"]
    objects = ["-f", write(tmp_path, "git.yaml", body)]
    assert_as_written(cluster, plan(*objects, *whole(cluster, tmp_path))["llama"])


def test_the_oldest_is_planned_first_whatever_the_order_of_the_files(tmp_path, plan):
    cluster = Cluster(dict(MI300X, gpusPerNode=2, count=1))
    for name in ("zoo", "ant"):
        cluster.apply(name, spec_of(replicas=2))
        cluster.clock.advance(60)
    objects = ["-f", dump(cluster.api, tmp_path / "infd.yaml", [INFERENCE_DEPLOYMENTS])]
    items = plan(*objects, "--nodes", dump(cluster.api, tmp_path / "n.yaml", [NODES]), code=3)
    assert list(items) == ["zoo", "ant"]
    assert len(items["zoo"]["status"]["placements"]) == 1
    assert items["ant"]["status"]["placements"] == []


def test_a_waiting_object_of_the_dump_keeps_its_capacity_from_later_ones(tmp_path, plan):
    cluster = Cluster(dict(MI300X, gpusPerNode=2, count=1))
    cluster.occupy("mi300x-0", 1)
    cluster.api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    cluster.apply("first", spec_of(replicas=2))  # it gets one GPU and waits for the other
    asyncio.run(cluster.settle())
    cluster.free("mi300x-0")
    later = git_file(tmp_path, "later")
    item = plan("-f", later, *whole(cluster, tmp_path), code=3)["later"]
    assert item["status"]["placements"] == []
    urgent = git_file(tmp_path, "urgent", template={"spec": {"priorityClassName": "high"}})
    item = plan("-f", urgent, *whole(cluster, tmp_path))["urgent"]
    assert item["status"]["placements"][0]["replicas"] == 1


def test_a_missing_priority_class_is_reported(tmp_path, plan):
    cluster = Cluster(MI300X)
    cluster.api.put(PRIORITY_CLASSES, {"metadata": {"name": "high"}, "value": 1000})
    urgent = git_file(tmp_path, template={"spec": {"priorityClassName": "highest"}})
    item = plan("-f", urgent, *whole(cluster, tmp_path), code=3)["llama"]
    assert "there is no PriorityClass 'highest'" in item["status"]["conditions"][0]["message"]


@pytest.mark.parametrize(
    "argument",
    ["--tensor-parallel-size=" + "9" * 5000, "--nnodes=999999999", "--nnodes=" + "9" * 5000],
)
def test_no_argument_of_a_pod_ends_the_plan(tmp_path, plan, argument):
    """A user who may create pods may write any argument, and a platform team plans with all."""
    cluster = asyncio.run(served(MI300X, H100, replicas=2))
    for pod in cluster.pods():
        pod["spec"]["containers"][0]["args"].append(argument)
        cluster.api.put(PODS, pod)
    assert plan(*parts(cluster, tmp_path))["llama"]["status"]["conditions"]


def test_children_in_the_dump_give_the_uid_of_an_object_that_it_lacks(tmp_path, plan):
    cluster = asyncio.run(served(MI300X, replicas=1))
    kinds = [NODES, PODS, DEPLOYMENTS, SERVICES]
    words = ["--nodes", dump(cluster.api, tmp_path / "children.yaml", kinds)]
    item = plan("-f", git_file(tmp_path, replicas=1), *words)["llama"]
    assert [owner["uid"] for owner in item["manifests"][1]["metadata"]["ownerReferences"]] == [
        cluster.inference_deployment()["metadata"]["uid"]
    ]


def test_pods_that_wait_for_a_node_hold_their_gpus_against_an_older_object(tmp_path, plan):
    cluster = Cluster(dict(MI300X, gpusPerNode=2, count=1))
    cluster.apply("older", spec_of(replicas=1))
    cluster.clock.advance(60)
    cluster.apply("llama", spec_of(replicas=2))
    asyncio.run(cluster.reconcile("llama"))
    run_deployments(cluster.api)
    items = plan(*parts(cluster, tmp_path), code=3)
    assert list(items) == ["older", "llama"]
    assert items["older"]["status"]["placements"] == []
    assert items["llama"]["status"]["placements"][0]["replicas"] == 2


def test_the_hub_of_the_operator_is_read_from_its_deployments(tmp_path, plan):
    cluster = asyncio.run(served(MI300X, replicas=1))
    body = cluster.deployment("llama-mi300x")
    (container,) = body["spec"]["template"]["spec"]["containers"]
    container["env"].append({"name": "HF_ENDPOINT", "value": "http://mirror"})
    cluster.api.put(DEPLOYMENTS, body)
    item = plan("-f", git_file(tmp_path, "other"), *whole(cluster, tmp_path))["other"]
    (container,) = item["manifests"][1]["spec"]["template"]["spec"]["containers"]
    assert {"name": "HF_ENDPOINT", "value": "http://mirror"} in container["env"]


def test_an_object_that_is_being_deleted_is_ignored(tmp_path, plan):
    cluster = asyncio.run(served(MI300X))
    body = cluster.inference_deployment()
    body["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    assert plan(*parts(cluster, tmp_path)) == {}


def test_a_name_conflict_is_reported_as_the_operator_does(tmp_path, plan):
    cluster = Cluster(MI300X)
    taken = {"metadata": {"name": "llama", "namespace": NAMESPACE}, "spec": {}}
    cluster.api.put(SERVICES, taken)
    item = plan("-f", git_file(tmp_path), *whole(cluster, tmp_path), code=3)["llama"]
    assert item["status"]["conditions"][0]["reason"] == "NameConflict"
    assert item["manifests"] == []


def test_without_a_uid_children_have_neither_owner_nor_a_digest_over_it(tmp_path, plan):
    cluster = Cluster(MI300X)
    nodes = dump(cluster.api, tmp_path / "n.yaml", [NODES])
    for manifest in plan("-f", git_file(tmp_path), "--nodes", nodes)["llama"]["manifests"]:
        assert "ownerReferences" not in manifest["metadata"]
        assert "tonnage.dev/rendered" not in manifest["metadata"].get("annotations", {})


def test_discovered_pools_of_a_dump_are_discovered_again(tmp_path, plan):
    cluster = Cluster(MI300X)
    body = {
        "metadata": {"name": "gone", "labels": {"tonnage.dev/discovered": "true"}},
        "spec": {"nodeSelector": {"no": "node"}},
    }
    cluster.api.put(ACCELERATOR_POOLS, body)
    (candidate,) = plan("-f", git_file(tmp_path), *parts(cluster, tmp_path, objects=False))[
        "llama"
    ]["status"]["candidates"]
    assert candidate["pool"] == "amd-mi300x"


def test_a_pool_among_the_given_files_is_declared_as_applying_them_would(tmp_path, plan):
    cluster = Cluster(MI300X)
    pool = {
        "apiVersion": "tonnage.dev/v1alpha1",
        "kind": "AcceleratorPool",
        "metadata": {"name": "team"},
        "spec": {"nodeSelector": MI300X_POOL},
    }
    objects = ["-f", git_file(tmp_path), "-f", write(tmp_path, "pool.yaml", pool)]
    (placement,) = plan(*objects, *whole(cluster, tmp_path))["llama"]["status"]["placements"]
    assert placement["pool"] == "team"


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({"metadata": {"generation": "1"}}, "metadata.generation is '1', expected an integer"),
        ({"metadata": {"creationTimestamp": "now"}}, "metadata.creationTimestamp is 'now'"),
        ({"status": [1]}, "status is a list, expected an object"),
        ({"status": {"conditions": [], "placements": 7}}, "status.placements is 7"),
        (
            {"status": {"conditions": [{"type": "Placed"}]}},
            "status.conditions[0].status is missing",
        ),
    ],
)
def test_a_dump_that_no_api_server_made_is_named(tmp_path, capsys, change, want):
    cluster = Cluster(MI300X)
    body = yaml.safe_load(Path(git_file(tmp_path)).read_text())
    body["metadata"] |= change.pop("metadata", {})
    words = ["-f", write(tmp_path, "odd.yaml", body | change), *whole(cluster, tmp_path)]
    assert main(["plan", *words]) == 2
    error = capsys.readouterr().err
    assert "odd.yaml, InferenceDeployment chat/llama: " in error
    assert want in error


WRONG_TYPES = [
    ({"kind": "PriorityClass", "value": "high"}, "value is 'high', expected an integer"),
    ({"kind": "Deployment"}, "spec is missing, expected an object"),
    ({"kind": "Deployment", "spec": [1]}, "spec is a list, expected an object"),
    ({"kind": "Deployment", "spec": {"replicas": True}}, "spec.replicas is True, expected an int"),
    (
        {"kind": "Deployment", "spec": {}, "metadata": {"ownerReferences": [7]}},
        "metadata.ownerReferences[0] is 7, expected an object",
    ),
    (
        {"kind": "Deployment", "spec": {"template": {"spec": {"containers": {"name": "a"}}}}},
        "spec.template.spec.containers is an object, expected a list",
    ),
    (
        {"kind": "Pod", "spec": {"containers": [{"env": [{"name": "PIN", "value": 1234}]}]}},
        "spec.containers[0].env[0].value is a value that is not shown, expected a string",
    ),
    (
        {"kind": "Pod", "spec": {"nodeName": "a"}, "status": {"conditions": [1]}},
        "status.conditions[0] is 1, expected an object",
    ),
    (
        {"kind": "Node", "status": {"allocatable": "x"}},
        "status.allocatable is 'x', expected an obj",
    ),
    (
        {"kind": "Node", "metadata": {"labels": {"nvidia.com/gpu.count": 8}}},
        "metadata.labels.nvidia.com/gpu.count is 8, expected a string",
    ),
    ({"kind": "Node", "metadata": {"labels": {5: "a"}}}, "metadata.labels is 5, expected a name"),
    (
        {"kind": "Service", "metadata": {"creationTimestamp": "yesterday"}},
        "metadata.creationTimestamp is 'yesterday', expected a time as 2026-01-31T12:00:00Z",
    ),
]


@pytest.mark.parametrize(("child", "want"), WRONG_TYPES, ids=[want[:40] for _, want in WRONG_TYPES])
def test_a_value_of_another_type_than_the_api_server_stores_is_named(tmp_path, capsys, child, want):
    cluster = Cluster(MI300X)
    own = {"name": "odd", "namespace": NAMESPACE}
    labels = {"tonnage.dev/inferencedeployment": "llama", "tonnage.dev/placement": "mi300x"}
    body = child | {"metadata": {**own, "labels": labels, **child.get("metadata", {})}}
    words = ["-f", git_file(tmp_path), "-f", write(tmp_path, "odd.yaml", body)]
    assert main(["plan", *words, *whole(cluster, tmp_path)]) == 2
    assert f"odd.yaml, {child['kind']} chat/odd: {want}" in capsys.readouterr().err


def test_another_object_of_the_dump_that_no_api_server_made_is_named_too(tmp_path, capsys):
    cluster = Cluster(MI300X)
    cluster.apply("odd", spec_of())
    body = cluster.inference_deployment("odd")
    body["status"] = {"conditions": [{"type": "Placed"}]}
    cluster.api.put(INFERENCE_DEPLOYMENTS, body)
    assert main(["plan", "-f", git_file(tmp_path), *whole(cluster, tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "InferenceDeployment chat/odd: status.conditions[0].status is missing" in error


POOL = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "AcceleratorPool",
    "metadata": {"name": "team"},
    "spec": {"nodeSelector": MI300X_POOL},
}


@pytest.mark.parametrize(
    ("pools", "want"),
    [
        ([POOL, POOL], "AcceleratorPool team: team was already in"),
        ([POOL | {"apiVersion": "tonnage.dev/v1"}], "apiVersion is 'tonnage.dev/v1', expected"),
        ([POOL | {"apiVersion": None}], "apiVersion is missing, expected tonnage.dev/v1alpha1"),
        ([POOL | {"nodeSelector": {}}], "'nodeSelector' is none of apiVersion, kind, metadata"),
        ([POOL | {"metadata": {"name": "My pool"}}], "metadata.name is 'My pool', expected at"),
    ],
)
@pytest.mark.parametrize("flag", ["-f", "--pools"])
def test_a_pool_that_the_api_server_would_refuse_is_named(tmp_path, capsys, pools, want, flag):
    cluster = Cluster(MI300X)
    given = ["-f", git_file(tmp_path), flag, write(tmp_path, "pools.yaml", *pools)]
    assert main(["plan", *given, "--nodes", dump(cluster.api, tmp_path / "n.yaml", [NODES])]) == 2
    error = capsys.readouterr().err
    assert "pools.yaml, AcceleratorPool " in error
    assert want in error


def test_a_node_that_a_file_has_twice_is_named(tmp_path, capsys):
    (node,) = Cluster(dict(MI300X, count=1)).api.objects(NODES)
    nodes = write(tmp_path, "nodes.yaml", node, node)
    assert main(["plan", "-f", git_file(tmp_path), "--nodes", nodes]) == 2
    assert "nodes.yaml, Node mi300x-0: mi300x-0 was already in" in capsys.readouterr().err
