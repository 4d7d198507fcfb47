"""What a user and a pool may do next to the container that keeps weights on the disk of a node."""

import ast
from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_option, make_spec, pod_of
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.engines.errors import PodTemplateError
from tonnage.engines.inputs import Owner, RenderSettings
from tonnage.workloads.pod.pool_check import explain_templates
from tonnage.workloads.pod.template import check_template
from tonnage.workloads.pod.weights import program

SIDE = {"name": "side", "image": "side:1"}


def on_node(pod: dict[str, Any] | None = None, cache: Any = None) -> InferenceDeploymentSpec:
    model = {"source": {"huggingFace": {"repo": "acme/llama"}}, "cache": cache or {"nodeDisk": {}}}
    return make_spec(model=model, podTemplate={"spec": pod or {}})


def declared(pod: dict[str, Any] | None = None) -> dict[str, Any]:
    weights = {"nodeDisk": {"capacity": "2Ti"}}
    return {"nodeSelector": {"a": "b"}, "weights": weights, "podTemplate": {"spec": pod or {}}}


def mounting(**mount: Any) -> dict[str, Any]:
    return SIDE | {"volumeMounts": [{"name": "model", "mountPath": "/m", **mount}]}


REFUSED = [
    pytest.param({"initContainers": [SIDE | {"name": "weights"}]}, "name", id="keeper"),
    pytest.param({"containers": [SIDE | {"name": "weights"}]}, "name", id="container"),
    pytest.param({"containers": [mounting()]}, "volumeMounts[0].readOnly", id="writes"),
    pytest.param({"initContainers": [mounting(readOnly=False)]}, "readOnly", id="init writes"),
    pytest.param({"containers": [mounting(readOnly="true")]}, "readOnly", id="a text"),
]


@pytest.mark.parametrize(("pod", "want"), REFUSED)
def test_a_user_who_would_write_to_the_node_is_refused_with_the_field(
    pod: dict[str, Any], want: str
) -> None:
    with pytest.raises(PodTemplateError) as error:
        check_template(on_node(pod))
    assert want in str(error.value)
    check_template(on_node(pod, cache={"image": {"reference": "models/llama:1"}}))


@pytest.mark.parametrize(("pod", "want"), REFUSED)
def test_a_pool_that_would_is_no_candidate(pod: dict[str, Any], want: str) -> None:
    pool = make_option(declared=declared(pod)).pool
    assert want in (explain_templates(on_node(), pool, RenderSettings()) or "")
    assert explain_templates(make_spec(), pool, RenderSettings()) is None


def test_containers_that_read_the_model_are_admitted() -> None:
    spec = on_node({"containers": [mounting(readOnly=True)]})
    check_template(spec)
    pool = make_option(declared=declared()).pool
    assert explain_templates(spec, pool, RenderSettings()) is None


def test_each_namespace_has_a_directory_of_its_own() -> None:
    option = make_option(declared=declared())
    paths = {
        namespace: pod_of(make_deployment(on_node(), option, owner=Owner(namespace, "llama", "u")))
        for namespace in ("chat", "search")
    }
    for namespace, pod in paths.items():
        (volume,) = (each for each in pod["volumes"] if "hostPath" in each)
        assert volume["hostPath"]["path"] == f"/var/lib/tonnage/weights/{namespace}"


def test_only_the_keeper_can_write() -> None:
    pod = pod_of(make_deployment(on_node(), make_option(declared=declared())))
    writers = [
        container["name"]
        for container in (*pod["initContainers"], *pod["containers"])
        for mount in container["volumeMounts"]
        if mount["name"] == "model" and not mount.get("readOnly")
    ]
    assert writers == ["weights"]


def test_each_node_of_a_replica_keeps_the_weights() -> None:
    interconnect = {"interconnect": {"resource": "rdma/ib"}}
    option = make_option(tensor=8, pipeline=2, nodes=2, declared=declared() | interconnect)
    templates = make_deployment(on_node(), option)["spec"]["leaderWorkerTemplate"]
    for role in ("leaderTemplate", "workerTemplate"):
        pod = templates[role]["spec"]
        (keeper,) = pod["initContainers"]
        assert keeper["name"] == "weights"
        assert {"name": "PAUSE", "value": "60"} in keeper["env"]
        assert any("hostPath" in volume for volume in pod["volumes"])


def test_the_download_trusts_what_the_server_trusts() -> None:
    volume = {"name": "ca", "configMap": {"name": "corporate-ca"}}
    mount = {"name": "ca", "mountPath": "/etc/corporate"}
    pod = {"volumes": [volume], "containers": [{"name": "vllm", "volumeMounts": [mount]}]}
    variable = {"name": "SSL_CERT_FILE", "value": "/etc/corporate/ca.crt"}
    spec = on_node(pod).model_copy(
        update={"engine": make_spec(engine={"vllm": {"env": [variable]}}).engine}
    )
    rendered = pod_of(make_deployment(spec, make_option(declared=declared())))
    (keeper,) = rendered["initContainers"]
    assert variable in keeper["env"]
    (mounted,) = (one for one in keeper["volumeMounts"] if one["mountPath"] == "/etc/corporate")
    (source,) = (one for one in rendered["volumes"] if one["name"] == mounted["name"])
    assert source["configMap"] == {"name": "corporate-ca"}
    assert mounted["readOnly"]


def test_the_deadline_of_a_rollout_allows_for_the_download() -> None:
    option = make_option(declared=declared())
    image = {"image": {"reference": "models/llama:1"}}
    from_disk, from_image = (
        make_deployment(spec, option)["spec"]["progressDeadlineSeconds"]
        for spec in (on_node(), on_node(cache=image))
    )
    pull = 2 * 160 * 2**30 / 250_000_000  # in steps of 32 GiB
    download = 3600 + 141_107_412_992 // 10_000_000
    assert abs((from_disk - download) - (from_image - pull)) <= 1


@pytest.mark.parametrize("name", ["download", "node_disk", "prefetch"])
def test_programs_need_no_package_of_tonnage(name: str) -> None:
    tree = ast.parse(program(name))
    nodes = list(ast.walk(tree))
    imported = {
        *(alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names),
        *(node.module for node in nodes if isinstance(node, ast.ImportFrom)),
    }
    defined = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    assert not any(str(module).startswith("tonnage") for module in imported)
    assert len(defined) == len(set(defined))
    assert ("count_bytes" in defined) is (name != "prefetch")
