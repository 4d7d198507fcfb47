"""What podTemplates of a pool and of an object set on the pods, and what they must not set."""

from dataclasses import replace
from typing import Any

import pytest

from tests.golden.render.inputs import make_deployment, make_option, make_spec, pod_of
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError, parse_spec
from tonnage.engines.errors import ForbiddenMetadataError, PodTemplateError, RenderError
from tonnage.engines.inputs import RenderSettings
from tonnage.fleet.model import Pool
from tonnage.workloads.pod.pool_check import explain_pool_template, explain_templates
from tonnage.workloads.pod.template import check_template


def spec_with(pod: dict[str, Any] | None = None, **metadata: Any) -> InferenceDeploymentSpec:
    return make_spec(podTemplate={"metadata": metadata, "spec": pod or {}})


def declare(pod: dict[str, Any] | None = None, **metadata: Any) -> dict[str, Any]:
    template = {"metadata": metadata, "spec": pod or {}}
    return {"nodeSelector": {"a": "b"}, "podTemplate": template}


def pool_with(pod: dict[str, Any] | None = None, **metadata: Any) -> Pool:
    return make_option(declared=declare(pod, **metadata)).pool


def render(pod: dict[str, Any] | None = None, pool: dict[str, Any] | None = None) -> dict[str, Any]:
    option = make_option(declared=None if pool is None else declare(pool))
    spec = spec_with(pod)
    check_template(spec)
    assert explain_templates(spec, option.pool, RenderSettings(privileged_pools=True)) is None
    return pod_of(make_deployment(spec, option))


def vllm_of(pod: dict[str, Any]) -> dict[str, Any]:
    container: dict[str, Any] = pod["containers"][0]
    assert container["name"] == "vllm"
    return container


PLAIN = pod_of(make_deployment())
SIDECAR = {"name": "proxy", "image": "envoy:1"}


def test_an_empty_template_changes_nothing() -> None:
    assert render({}, {}) == PLAIN
    assert make_deployment(spec_with()) == make_deployment()


def test_the_pool_comes_first_and_then_the_object() -> None:
    pod = render(
        {"schedulerName": "mine", "securityContext": {"fsGroup": 7}},
        {"schedulerName": "volcano", "runtimeClassName": "kata"},
    )
    assert (pod["schedulerName"], pod["runtimeClassName"]) == ("mine", "kata")
    assert pod["securityContext"] == {**PLAIN["securityContext"], "fsGroup": 7}


def test_labels_of_the_operator_win_and_those_of_the_object_come_after_the_pools() -> None:
    option = make_option(declared=declare(labels={"a": "pool", "b": "pool"}))
    spec = spec_with(labels={"a": "object"}, annotations={"c": "d"})
    metadata = make_deployment(spec, option)["spec"]["template"]["metadata"]
    plain = make_deployment()["spec"]["template"]["metadata"]["labels"]
    assert metadata == {
        "labels": {**plain, "a": "object", "b": "pool"},
        "annotations": {"c": "d"},
    }


class TestWhatThePlanRestsOn:
    def test_node_affinity_of_the_pool_is_required_as_well(self) -> None:
        def requiring(*keys: str) -> dict[str, Any]:
            terms = [{"matchExpressions": [{"key": key, "operator": "Exists"}]} for key in keys]
            required = {"nodeSelectorTerms": terms}
            return {
                "affinity": {
                    "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
                }
            }

        def terms_of(pod: dict[str, Any]) -> list[list[str]]:
            required = pod["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]
            return [
                [expression["key"] for expression in term["matchExpressions"]]
                for term in required["nodeSelectorTerms"]
            ]

        (own,) = terms_of(PLAIN)
        assert terms_of(render(requiring("a", "b"))) == [[*own, "a"], [*own, "b"]]
        assert terms_of(render(requiring("a", "b"), requiring("p"))) == [
            [*own, "p", "a"],
            [*own, "p", "b"],
        ]

    def test_other_affinity_is_the_users(self) -> None:
        anti = {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "zone"}]}
        pod = render({"affinity": {"podAntiAffinity": anti}})
        assert pod["affinity"] == {**PLAIN["affinity"], "podAntiAffinity": anti}

    def test_tolerations_are_added(self) -> None:
        spot = {"key": "spot", "operator": "Exists"}
        assert render({"tolerations": [spot]})["tolerations"] == [*PLAIN["tolerations"], spot]

    def test_gpus_stay_whatever_happens_to_resources(self) -> None:
        for resources in (None, {"$patch": "replace"}, {"limits": {"$patch": "delete"}}):
            pod = render({"containers": [{"name": "vllm", "resources": resources}]})
            got = vllm_of(pod)["resources"]
            assert got["limits"] == {"amd.com/gpu": "1"}
            assert got["requests"]["amd.com/gpu"] == "1"

    def test_a_limit_replaces_the_computed_request(self) -> None:
        limits = {"memory": "1536Mi", "rdma/hca": 1}
        pod = render({"containers": [{"name": "vllm", "resources": {"limits": limits}}]})
        resources = vllm_of(pod)["resources"]
        assert resources["limits"] == {"memory": "1536Mi", "rdma/hca": "1", "amd.com/gpu": "1"}
        assert "memory" not in resources["requests"]
        assert resources["requests"]["cpu"] == "3"

    def test_vllm_is_the_first_container(self) -> None:
        pod = render({"containers": [SIDECAR]}, {"containers": [{"name": "a", "image": "a:1"}]})
        names = [container["name"] for container in pod["containers"]]
        assert names[0] == "vllm"
        assert set(names) == {"vllm", "proxy", "a"}

    def test_grace_is_at_least_what_the_drain_takes(self) -> None:
        assert (
            render({"terminationGracePeriodSeconds": 900})["terminationGracePeriodSeconds"] == 900
        )
        assert (
            render({"terminationGracePeriodSeconds": 130})["terminationGracePeriodSeconds"] == 160
        )
        with pytest.raises(
            PodTemplateError, match="60 is refused: running requests may take 130 s"
        ):
            render({"terminationGracePeriodSeconds": 60})

    def test_the_rest_of_the_container_stays(self) -> None:
        pod = render({"containers": [{"name": "vllm", "startupProbe": {"failureThreshold": 999}}]})
        own, got = vllm_of(PLAIN), vllm_of(pod)
        assert got == {**own, "startupProbe": {**own["startupProbe"], "failureThreshold": 999}}


def test_containers_that_are_added_are_confined_like_vllm() -> None:
    pod = render({"containers": [SIDECAR], "initContainers": [{"name": "a", "image": "a:1"}]})
    confined = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    assert pod["containers"][1]["securityContext"] == confined
    assert pod["initContainers"][0]["securityContext"] == confined
    loose = {**SIDECAR, "securityContext": {"$patch": "replace", "runAsUser": 5}}
    assert render({"containers": [loose]})["containers"][1]["securityContext"] == {"runAsUser": 5}


class TestTheCache:
    def test_another_source_replaces_the_volume(self) -> None:
        claim = {"name": "cache", "persistentVolumeClaim": {"claimName": "c"}}
        pod = render({"volumes": [claim]})
        assert claim in pod["volumes"]
        assert len(pod["volumes"]) == len(PLAIN["volumes"])
        assert vllm_of(pod)["volumeMounts"] == vllm_of(PLAIN)["volumeMounts"]

    def test_another_mount_at_its_path_leaves_it_out(self) -> None:
        mine = {"name": "mine", "persistentVolumeClaim": {"claimName": "c"}}
        mount = {"name": "mine", "mountPath": "/cache/"}
        pod = render({"volumes": [mine], "containers": [{"name": "vllm", "volumeMounts": [mount]}]})
        assert [volume["name"] for volume in pod["volumes"]] == ["shm", "mine"]

    def test_shared_memory_may_be_larger(self) -> None:
        pod = render({"volumes": [{"name": "shm", "emptyDir": {"sizeLimit": "32768Mi"}}]})
        shm = next(volume for volume in pod["volumes"] if volume["name"] == "shm")
        assert shm["emptyDir"] == {"medium": "Memory", "sizeLimit": "32Gi"}


VLLM = "containers[0]"
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"hostNetwork": True}, "hostNetwork: true", "expected one of affinity"),
    ({"nodeName": "a"}, "nodeName: 'a'", "use affinity"),
    ({"restartPolicy": "Never"}, "restartPolicy: 'Never'", "needs Always"),
    ({"enableServiceLinks": True}, "enableServiceLinks: true", "Service named vllm"),
    ({"automountServiceAccountToken": True}, "automountServiceAccountToken: true", "no token"),
    ({"resourceClaims": [{"name": "gpu"}]}, "resourceClaims", "requests GPUs itself"),
    ({"affinty": {}}, "affinty", "expected one of affinity"),
    ({"affinity": None}, "affinity", "affinity of the pool always applies"),
    (
        {"affinity": {"nodeAffinity": {"$patch": "delete"}}},
        "affinity.nodeAffinity",
        "always applies",
    ),
    ({"volumes": None}, "volumes", "expected a list"),
    ({"containers": None}, "containers", "expected a list"),
    ({"containers": [{"name": "vllm", "image": "x"}]}, f"{VLLM}.image: 'x'", "engine.vllm.image"),
    ({"containers": [{"name": "vllm", "args": []}]}, f"{VLLM}.args", "extraArgs"),
    ({"containers": [{"name": "vllm", "command": ["sh"]}]}, f"{VLLM}.command", "extraArgs"),
    ({"containers": [{"name": "vllm", "env": []}]}, f"{VLLM}.env", "use spec.engine.vllm.env"),
    ({"containers": [{"name": "vllm", "ports": []}]}, f"{VLLM}.ports", "Service"),
    ({"containers": [{"name": "vllm", "readinessProbe": None}]}, f"{VLLM}.readinessProbe", "ready"),
    ({"containers": [{"name": "vllm", "$patch": "delete"}]}, f"{VLLM}.$patch: 'delete'", "remove"),
    ({"containers": [{"$patch": "replace"}, SIDECAR]}, f"{VLLM}.$patch: 'replace'", "remove it"),
    (
        {"containers": [{"name": "vllm", "resources": {"limits": {"nvidia.com/gpu": 8}}}]},
        f"{VLLM}.resources.limits[nvidia.com/gpu]: 8",
        "requests GPUs itself",
    ),
    (
        {
            "containers": [
                {"name": "vllm", "volumeMounts": [{"name": "a", "mountPath": "/dev//shm"}]}
            ]
        },
        f"{VLLM}.volumeMounts[0].mountPath: '/dev//shm'",
        "use another path",
    ),
    ({"containers": [{"name": "a"}]}, f"{VLLM}.image", "expected an image"),
    ({"containers": [{"image": "a"}]}, VLLM, "name is required"),
    (
        {"initContainers": [{"name": "vllm", "image": "a"}]},
        "initContainers[0].name: 'vllm'",
        "other",
    ),
    (
        {"containers": [{**SIDECAR, "ports": [{"containerPort": 8000}]}]},
        f"{VLLM}.ports[0]: 8000",
        "use another",
    ),
    (
        {"containers": [{**SIDECAR, "env": [{"name": "NVIDIA_VISIBLE_DEVICES", "value": "all"}]}]},
        f"{VLLM}.env[0].name: 'NVIDIA_VISIBLE_DEVICES'",
        "selects GPUs",
    ),
    ({"containers": [{**SIDECAR, "envFrom": []}]}, f"{VLLM}.envFrom", "expected one of"),
    (
        {"containers": [{**SIDECAR, "resources": {"requests": {"amd.com/gpu": 1}}}]},
        f"{VLLM}.resources.requests[amd.com/gpu]: 1",
        "GPUs itself",
    ),
    (
        {"containers": [{"name": "vllm", "volumeMounts": [{"$patch": "replace"}]}]},
        f"{VLLM}.volumeMounts[0].$patch: 'replace'",
        "mounts stay",
    ),
    ({"volumes": [{"name": "model", "emptyDir": {}}]}, "volumes[0].name: 'model'", "model.source"),
    ({"volumes": [{"name": "shm", "secret": {}}]}, "volumes[0]: 'shm'", "sizeLimit"),
    ({"terminationGracePeriodSeconds": "10"}, "terminationGracePeriodSeconds", "expected seconds"),
    ({"terminationGracePeriodSeconds": -1}, "terminationGracePeriodSeconds", "expected seconds"),
    ({"nodeSelector": {"rack": 5}}, "nodeSelector[rack]", "expected a text; quote it"),
    (
        {"volumes": [{"name": "tmp", "emptyDir": {"sizeLimit": "1GB"}}]},
        "volumes[0].emptyDir.sizeLimit",
        "expected a quantity, such as 500m, 80G or 80Gi",
    ),
    *(
        (
            {"containers": [{"name": "vllm", "resources": {"requests": {"memory": quantity}}}]},
            "containers[0].resources.requests[memory]",
            "expected a quantity, such as 500m, 80G or 80Gi",
        )
        for quantity in ("3000GB", "-5Gi", "abc", "", True)
    ),
]
FOR_POOLS: list[tuple[dict[str, Any], str, str]] = [
    (
        {"containers": [{"name": "vllm", "securityContext": {"privileged": True}}]},
        f"{VLLM}.securityContext.privileged: true",
        "no privileged container",
    ),
    (
        {"containers": [{**SIDECAR, "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
        f"{VLLM}.securityContext.capabilities.add: 'SYS_ADMIN'",
        "no further capability",
    ),
    (
        {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
        "volumes[0].hostPath",
        "no directory",
    ),
    (
        {"securityContext": {"seccompProfile": {"type": "Unconfined"}}},
        "securityContext.seccompProfile.type: 'Unconfined'",
        "RuntimeDefault or Localhost",
    ),
    (
        {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}},
        "securityContext.sysctls[0].name: 'kernel.msgmax'",
        "a safe sysctl",
    ),
    (
        {"securityContext": {"seLinuxOptions": {"type": "spc_t"}}},
        "securityContext.seLinuxOptions.type: 'spc_t'",
        "container_t",
    ),
    (
        {"containers": [{**SIDECAR, "ports": [{"containerPort": 1, "hostPort": 1}]}]},
        f"{VLLM}.ports[0].hostPort: 1",
        "no host port",
    ),
    (
        {"containers": [{"name": "vllm", "livenessProbe": {"httpGet": {"host": "10.0.0.1"}}}]},
        f"{VLLM}.livenessProbe.httpGet.host: '10.0.0.1'",
        "the pod itself",
    ),
]
FOR_PLATFORMS: list[tuple[dict[str, Any], str]] = [
    ({"volumes": [{"name": "a", "csi": {"driver": "d"}}]}, "volumes[0].csi"),
    ({"volumes": [{"name": "a", "nfs": {"server": "s"}}]}, "volumes[0].nfs"),
    (
        {"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {}}]}}]},
        "volumes[0].projected.sources[0].serviceAccountToken",
    ),
]


@pytest.mark.parametrize(("pod", "field", "instead"), [*REFUSED, *FOR_POOLS])
def test_what_an_object_must_not_set_is_refused_with_field_value_and_remedy(
    pod: dict[str, Any], field: str, instead: str
) -> None:
    with pytest.raises(RenderError) as refused:
        check_template(spec_with(pod))
    message = str(refused.value)
    assert message.startswith(f"spec.podTemplate.spec.{field}"), message
    assert instead in message


@pytest.mark.parametrize(("pod", "field"), FOR_PLATFORMS)
def test_sources_beyond_the_namespace_are_for_pools(pod: dict[str, Any], field: str) -> None:
    with pytest.raises(PodTemplateError, match="expected one of configMap") as refused:
        check_template(spec_with(pod))
    assert refused.value.field == f"spec.podTemplate.spec.{field}"
    assert explain_pool_template(pool_with(pod), RenderSettings()) is None


@pytest.mark.parametrize(("pod", "field", "instead"), FOR_POOLS)
def test_a_pool_breaks_the_baseline_only_where_the_platform_allows_it(
    pod: dict[str, Any], field: str, instead: str
) -> None:
    pool = pool_with(pod)
    refused = explain_pool_template(pool, RenderSettings())
    assert refused is not None
    assert refused.startswith(f"AcceleratorPool {pool.name}: spec.podTemplate.spec.{field}")
    assert instead in refused
    assert "--pool-pod-security=privileged" in refused
    assert explain_pool_template(pool, RenderSettings(privileged_pools=True)) is None


def test_host_namespaces_are_for_privileged_pools() -> None:
    pool = pool_with({"hostNetwork": True})
    assert "no host namespace" in str(explain_pool_template(pool, RenderSettings()))
    assert explain_pool_template(pool, RenderSettings(privileged_pools=True)) is None
    assert render({}, {"hostNetwork": True})["hostNetwork"] is True


@pytest.mark.parametrize(
    ("pod", "instead"),
    [
        ({"tolerations": [{"key": "a", "operator": "Exists"}]}, "use spec.tolerations"),
        ({"nodeSelector": {"a": "b"}}, "use spec.nodeSelector"),
        ({"priorityClassName": "a"}, "podTemplate of the object"),
        ({"containers": [{"name": "vllm", "env": []}]}, "use spec.env of the pool"),
        ({"containers": [{"name": "vllm", "image": "a"}]}, "spec.images.vllm"),
    ],
)
def test_a_pool_has_a_field_for_what_the_fleet_counts_on(pod: dict[str, Any], instead: str) -> None:
    for settings in (RenderSettings(), RenderSettings(privileged_pools=True)):
        refused = explain_pool_template(pool_with(pod), settings)
        assert refused is not None
        assert instead in refused


@pytest.mark.parametrize(
    ("pod", "pool", "want"),
    [
        ({"containers": [SIDECAR]}, {"containers": [SIDECAR]}, "containers[0].name: 'proxy'"),
        (
            {"initContainers": [SIDECAR]},
            {"initContainers": [SIDECAR]},
            "initContainers[0].name: 'proxy'",
        ),
        (
            {"volumes": [{"name": "a", "emptyDir": {}}]},
            {"volumes": [{"name": "a", "secret": {"secretName": "s"}}]},
            "volumes[0].name: 'a'",
        ),
        (
            {"containers": [{"name": "vllm", "volumeMounts": [{"name": "a", "mountPath": "/x"}]}]},
            {
                "volumes": [{"name": "a", "emptyDir": {}}],
                "containers": [
                    {"name": "vllm", "volumeMounts": [{"name": "a", "mountPath": "/x"}]}
                ],
            },
            "volumeMounts[0].mountPath: '/x'",
        ),
        (
            {"containers": [{"name": "vllm", "volumeMounts": [{"name": "b", "mountPath": "/x"}]}]},
            {},
            "containers[0].volumeMounts: 'b' is refused: there is no volume of this name",
        ),
        (
            {"containers": [{"name": "vllm", "resources": {"requests": {"memory": "2Gi"}}}]},
            {"containers": [{"name": "vllm", "resources": {"limits": {"memory": "1Gi"}}}]},
            "requests.memory: request 2Gi is above limit 1Gi",
        ),
    ],
)
def test_templates_that_clash_are_refused(
    pod: dict[str, Any], pool: dict[str, Any], want: str
) -> None:
    spec = spec_with(pod)
    check_template(spec)
    problem = explain_templates(spec, pool_with(pool), RenderSettings())
    assert problem is not None
    assert problem.startswith("spec.podTemplate.spec.")
    assert want in problem


def test_a_pool_without_a_declaration_has_no_template() -> None:
    plain = make_option().pool
    assert explain_templates(make_spec(), plain, RenderSettings()) is None
    assert explain_pool_template(replace(plain, declared=None), RenderSettings()) is None


def test_keys_of_the_operator_are_refused_on_both() -> None:
    with pytest.raises(ForbiddenMetadataError) as refused:
        check_template(spec_with(labels={"tonnage.dev/placement": "x"}))
    assert refused.value.field == "spec.podTemplate.metadata.labels"
    problem = explain_pool_template(pool_with(labels={"tonnage.dev/x": "x"}), RenderSettings())
    assert "AcceleratorPool amd-mi300x: spec.podTemplate.metadata.labels" in str(problem)


def test_secrets_are_not_shown() -> None:
    for secret in ({"value": "hunter2"}, "hunter2"):
        with pytest.raises(RenderError) as refused:
            check_template(spec_with({"containers": [{"name": "vllm", "env": secret}]}))
        assert "hunter2" not in str(refused.value)


class TestTheDeprecatedTemplate:
    def test_it_gives_the_same_pods(self) -> None:
        old = make_spec(
            template={
                "spec": {
                    "runtimeClassName": "kata",
                    "resources": {"limits": {"memory": "64Gi"}},
                    "volumes": [{"name": "a", "emptyDir": {}}],
                    "volumeMounts": [{"name": "a", "mountPath": "/a"}],
                }
            }
        )
        new = spec_with(
            {
                "runtimeClassName": "kata",
                "volumes": [{"name": "a", "emptyDir": {}}],
                "containers": [
                    {
                        "name": "vllm",
                        "resources": {"limits": {"memory": "64Gi"}},
                        "volumeMounts": [{"name": "a", "mountPath": "/a"}],
                    }
                ],
            }
        )
        assert make_deployment(old) == make_deployment(new)

    def test_both_are_refused_together(self) -> None:
        raw = {
            "model": {"source": {"inline": {"config": {}}}},
            "workload": {"maxModelLen": 1},
            "podTemplate": {},
            "template": {"spec": {"runtimeClassName": "a"}},
        }
        with pytest.raises(InvalidSpecError, match="move its fields to podTemplate"):
            parse_spec(raw)
