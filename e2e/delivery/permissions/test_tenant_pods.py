"""Which fields of pods a tenant may set, and their limits.

The threat model in SECURITY.md names these tests.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

import pytest
import yaml

from e2e.delivery.permissions.tenants import Tenant, container_of, llama, pod_of
from e2e.harness.operator_process import ROOT, OperatorProcess
from e2e.harness.rest import ApiError, Json
from e2e.journeys.user import condition, has

TENANT_BOUNDS = ROOT / "manifests" / "components" / "tenant-bounds" / "policy.yaml"

ESCAPES: Json = {
    "hostNetwork": True,
    "hostPID": True,
    "hostIPC": True,
    "nodeName": "h100-0",
    "nodeSelector": {"a": "b"},
    "affinity": {},
    "automountServiceAccountToken": True,
    "shareProcessNamespace": True,
    "securityContext": {"runAsUser": 0, "sysctls": [{"name": "a", "value": "b"}]},
    "initContainers": [{"name": "a", "image": "evil", "securityContext": {"privileged": True}}],
    "containers": [{"name": "a", "image": "evil"}],
    "ephemeralContainers": [{"name": "a", "image": "evil"}],
    "hostAliases": [{"ip": "1.1.1.1", "hostnames": ["kubernetes.default"]}],
    "dnsConfig": {"nameservers": ["1.1.1.1"]},
    "schedulerName": "mine",
    "overhead": {"cpu": "1"},
    "resourceClaims": [{"name": "a"}],
}
FIELDS_OF_THE_CONTAINER = ("command", "securityContext", "lifecycle", "volumeDevices", "envFrom")


def test_pod_fields_that_break_isolation_are_dropped(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    tenant.create(llama("plain"))
    evil = llama("plain2", template={"spec": {**ESCAPES, "privileged": True}})
    for field in FIELDS_OF_THE_CONTAINER:
        evil["spec"]["engine"] = {"vllm": {field: [{"privileged": True}]}}
    tenant.create(evil)
    got, want = pod_of(tenant, "plain2"), pod_of(tenant, "plain")
    assert json.loads(json.dumps(got).replace("plain2", "plain")) == want
    assert want["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC", "nodeName", "initContainers"} & want.keys()
    assert container_of(want)["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def with_volume(**source: Any) -> Json:
    return {"template": {"spec": {"volumes": [{"name": "a", **source}]}}}


def with_env(name: str, value: str) -> Json:
    return {"engine": {"vllm": {"env": [{"name": name, "value": value}]}}}


def with_variable(**source: Any) -> Json:
    return {"engine": {"vllm": {"env": [{"name": "A", "valueFrom": source}]}}}


SOURCES: dict[str, Json] = {
    "a path of the host": with_volume(hostPath={"path": "/"}),
    "projected tokens": with_volume(
        projected={"sources": [{"serviceAccountToken": {"path": "t", "audience": "api"}}]}
    ),
    "a driver of the node": with_volume(csi={"driver": "a"}),
    "a volume of a network": with_volume(nfs={"server": "10.0.0.1", "path": "/"}),
    "a volume of its own making": with_volume(ephemeral={"volumeClaimTemplate": {"spec": {}}}),
    "an image": with_volume(image={"reference": "a"}),
    "two sources at once": with_volume(emptyDir={}, secret={"secretName": "a"}),
    "a field of the pod": with_variable(fieldRef={"fieldPath": "spec.nodeName"}),
    "a file": with_variable(fileKeyRef={"path": "a", "volumeName": "a", "key": "a"}),
}


@pytest.mark.parametrize("source", SOURCES)
def test_volume_and_variable_sources_outside_the_namespace_are_refused(
    tenant: Tenant, source: str
) -> None:
    with pytest.raises(ApiError, match=r"xactly one|Required value") as refused:
        tenant.create(llama("evil", **deepcopy(SOURCES[source])))
    assert refused.value.code == 422


REFUSED: dict[str, Json] = {
    "all GPUs of NVIDIA's": with_env("NVIDIA_VISIBLE_DEVICES", "all"),
    "all GPUs of AMD's": with_env("AMD_VISIBLE_DEVICES", "all"),
    "no AppArmor": {
        "template": {
            "metadata": {
                "annotations": {"container.apparmor.security.beta.kubernetes.io/vllm": "unconfined"}
            }
        }
    },
}


def test_variables_and_annotations_that_affect_the_node_are_refused(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    for number, given in enumerate(REFUSED.values()):
        tenant.create(llama(f"evil-{number}", **deepcopy(given)))
        status = tenant.user.wait(f"evil-{number}", has("Accepted", "False", "InvalidSpec"))
        assert "is refused, because" in condition(status, "Accepted")["message"]
        assert tenant.user.children("deployments", f"evil-{number}") == []


def of_vllm(**fields: Any) -> Json:
    return {"containers": [{"name": "vllm", **fields}]}


POD_TEMPLATES: dict[str, Json] = {
    "hostNetwork": {"hostNetwork": True},
    "hostPID": {"hostPID": True},
    "nodeName": {"nodeName": "h100-0"},
    "automountServiceAccountToken": {"automountServiceAccountToken": True},
    "ephemeralContainers": {"ephemeralContainers": [{"name": "a", "image": "evil"}]},
    "resourceClaims": {"resourceClaims": [{"name": "a"}]},
    "securityContext.sysctls": {
        "securityContext": {"sysctls": [{"name": "kernel.a", "value": "b"}]}
    },
    "initContainers[0].securityContext.privileged": {
        "initContainers": [{"name": "a", "image": "evil", "securityContext": {"privileged": True}}]
    },
    "containers[0].command": of_vllm(command=["sh"]),
    "containers[0].image": of_vllm(image="evil"),
    "containers[0].envFrom": of_vllm(envFrom=[{"secretRef": {"name": "a"}}]),
    "containers[0].securityContext.capabilities.add": of_vllm(
        securityContext={"capabilities": {"add": ["SYS_ADMIN"]}}
    ),
    "containers[0].resources": of_vllm(resources={"limits": {"nvidia.com/gpu": 8}}),
    "volumes[0].hostPath": {"volumes": [{"name": "a", "hostPath": {"path": "/"}}]},
    "volumes[0].projected.sources[0].serviceAccountToken": {
        "volumes": [
            {"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
        ]
    },
    "volumes[0].csi": {"volumes": [{"name": "a", "csi": {"driver": "a"}}]},
    "volumes[0].nfs": {"volumes": [{"name": "a", "nfs": {"server": "10.0.0.1", "path": "/"}}]},
}
"""What a podTemplate must not have, by the path that the message names."""


def test_pod_templates_that_break_isolation_are_refused(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    for number, (path, template) in enumerate(POD_TEMPLATES.items()):
        name = f"template-{number}"
        tenant.create(llama(name, podTemplate={"spec": deepcopy(template)}))
        status = tenant.user.wait(name, has("Accepted", "False", "InvalidSpec"))
        assert f"spec.podTemplate.spec.{path}" in condition(status, "Accepted")["message"]
        assert tenant.user.children("deployments", name) == []


EVERYTHING: Json = {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}


def test_a_pod_that_tolerates_everything_stays_on_the_nodes_of_the_pool(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    """By the affinity that Tonnage renders; it can neither be widened nor taken away."""
    tenant.create(llama("plain"))
    want = pod_of(tenant, "plain")["affinity"]
    tenant.create(llama("tolerant", **deepcopy(EVERYTHING)))
    got = pod_of(tenant, "tolerant")
    assert {"operator": "Exists"} in got["tolerations"]
    assert got["affinity"] == want
    required = want["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    (term,) = required["nodeSelectorTerms"]
    assert any("gpu" in one["key"] for one in term["matchExpressions"]), term


BEYOND_THE_BOUNDS: dict[str, tuple[Json, Json]] = {
    "tolerations: a tenant may": (EVERYTHING, {}),
    "tolerate the taints": (
        {"template": {"spec": {"tolerations": [{"key": "team", "value": "b"}]}}},
        {},
    ),
    "system-node-critical is not allowed; a tenant may use no PriorityClass": (
        {"template": {"spec": {"priorityClassName": "system-node-critical"}}},
        {},
    ),
    "preempts-others is not allowed": (
        {"template": {"spec": {"priorityClassName": "preempts-others"}}},
        {},
    ),
    "urgent is not allowed": ({"podTemplate": {"spec": {"priorityClassName": "urgent"}}}, {}),
    "tolerate the taints amd.com/gpu": (
        {"podTemplate": {"spec": {"tolerations": [{"key": "team", "value": "b"}]}}},
        {},
    ),
    "tonnage.dev/shard is the platform": ({}, {"tonnage.dev/shard": "b"}),
}


def test_limits_of_the_platform_team_apply_to_tenants(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    admin, mine = tenant.user.admin, tenant.user.namespace
    policy, binding = admin.apply(yaml.safe_load_all(TENANT_BOUNDS.read_text("utf-8")))
    admin.kubectl("label", "namespace", mine, "tonnage.dev/tenant=")
    try:
        admin.until("the policy to hold", lambda: _refuses(tenant, llama("probe", **EVERYTHING)))
        for want, (given, labels) in BEYOND_THE_BOUNDS.items():
            body = llama("beyond", **deepcopy(given))
            body["metadata"]["labels"] = labels
            with pytest.raises(ApiError, match=want):
                tenant.create(body)
        usual = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
        tenant.create(llama("within", template={"spec": {"tolerations": usual}}))
        tenant.user.wait_ready("within")
    finally:
        for made in (binding, policy):
            admin.delete(made["kind"].lower(), made["metadata"]["name"])


def test_tenants_have_the_priorities_that_a_platform_team_lists(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    admin, mine = tenant.user.admin, tenant.user.namespace
    listed = TENANT_BOUNDS.read_text("utf-8").replace('"[]"', "\"['batch', 'interactive']\"")
    policy, binding = admin.apply(yaml.safe_load_all(listed))
    classes = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 10}
    admin.apply({**classes, "metadata": {"name": "batch"}})
    admin.kubectl("label", "namespace", mine, "tonnage.dev/tenant=")
    try:
        beyond = llama("beyond", template={"spec": {"priorityClassName": "urgent"}})
        want = "urgent is not allowed; a tenant may use batch, interactive; ask the platform team"
        admin.until("the policy to hold", lambda: want in _refusal(tenant, beyond))
        tenant.create(llama("within", template={"spec": {"priorityClassName": "batch"}}))
        tenant.user.wait_ready("within")
        assert pod_of(tenant, "within")["priorityClassName"] == "batch"
        tenant.create(llama("without"))
        tenant.user.wait_ready("without")
    finally:
        for made in (binding, policy):
            admin.delete(made["kind"].lower(), made["metadata"]["name"])
        admin.delete("priorityclass", "batch")


def _refuses(tenant: Tenant, body: Json) -> bool:
    return bool(_refusal(tenant, body))


def _refusal(tenant: Tenant, body: Json) -> str:
    """Why the API server refuses the object; empty where it does not."""
    try:
        tenant.rest.request("POST", f"{tenant.path}?dryRun=All", body)
    except ApiError as error:
        return str(error)
    return ""


EVIL = ["--seed=1; reboot", "$(reboot)", "`reboot`", "--api-key=a\nb --port=1", "'\"\\", "\t*"]
NAME = "--trust-remote-code $(HF_TOKEN) `id` ;\n$HOME \x1b[2J"


def test_each_user_value_is_one_argument_and_no_shell_reads_it(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    body = llama("arguments", engine={"vllm": {"extraArgs": EVIL}})
    body["spec"]["model"] |= {"name": NAME}
    tenant.create(body)
    container = container_of(pod_of(tenant, "arguments"))
    assert container["args"][-len(EVIL) :] == EVIL
    literal = NAME.replace("$(", "$$(")  # Kubernetes would put in the value of a variable
    assert f"--served-model-name={literal}" in container["args"]
    assert container.get("command", []) in ([], ["vllm", "serve"])
    assert b"\x1b" not in operator.log.read_bytes()
