"""Pods that the operator's own ServiceAccount may not start, whatever process has its token.

The threat model in SECURITY.md names these tests.
"""

from __future__ import annotations

from typing import Any

import pytest

from e2e.delivery.permissions.operators_token import (
    DEPLOYMENT,
    JOB,
    TokenHolder,
    a_model,
    changed,
    owned_by,
    rendered,
)
from e2e.harness.admin import Admin
from e2e.harness.rest import ApiError, Json


def with_pod(change: Json) -> Json:
    return changed(DEPLOYMENT, {"spec": {"template": {"spec": change}}})


def with_container(change: Json) -> Json:
    (container,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    return with_pod({"containers": [changed(container, change)]})


def with_volume(**source: Any) -> Json:
    volumes = DEPLOYMENT["spec"]["template"]["spec"]["volumes"]
    return with_pod({"volumes": [*volumes, {"name": "x", **source}]})


def volumes_of(body: Json) -> list[Json]:
    volumes: list[Json] = body["spec"]["template"]["spec"]["volumes"]
    return volumes


def with_context(**fields: Any) -> Json:
    return with_container({"securityContext": fields})


HOST_VOLUME: Json = {"name": "model", "hostPath": {"path": "/"}}
SCRATCH: Json = {"name": "scratch", "emptyDir": {}}
INIT: Json = {"name": "first", "image": "i"}
CONFINED: Json = {**INIT, "securityContext": {"allowPrivilegeEscalation": False}}
TCP: Json = {"tcpSocket": {"port": 80, "host": "10.0.0.1"}}
PODS: dict[str, tuple[Json, str]] = {
    "the network of the node": (with_pod({"hostNetwork": True}), "hostNetwork, hostPID and"),
    "the processes of the node": (with_pod({"hostPID": True}), "hostNetwork, hostPID and"),
    "the memory of the node": (with_pod({"hostIPC": True}), "hostNetwork, hostPID and"),
    "a port of the node": (
        with_container({"ports": [{"name": "http", "containerPort": 8000, "hostPort": 80}]}),
        "hostPort is not allowed",
    ),
    "a probe of another host": (
        with_container({"livenessProbe": {"httpGet": {"port": 80, "host": "169.254.169.254"}}}),
        "the host of probes and of lifecycle hooks must be empty",
    ),
    "a probe of another host in an init container": (
        with_pod(
            {"initContainers": [{**CONFINED, "restartPolicy": "Always", "startupProbe": TCP}]}
        ),
        "the host of probes and of lifecycle hooks must be empty",
    ),
    "a hook that calls another host": (
        with_container({"lifecycle": {"postStart": TCP}}),
        "the host of probes and of lifecycle hooks must be empty",
    ),
    "a node": (with_pod({"nodeName": "control-plane"}), "bypasses the scheduler"),
    "privilege": (
        with_context(privileged=True, allowPrivilegeEscalation=None),
        "privileged: must not be true",
    ),
    "escalation": (with_context(allowPrivilegeEscalation=True), "must be false in every"),
    "escalation by default": (with_container({"securityContext": None}), "must be false in every"),
    "escalation in an init container": (with_pod({"initContainers": [INIT]}), "must be false in"),
    "privilege in an init container": (
        with_pod({"initContainers": [{**INIT, "securityContext": {"privileged": True}}]}),
        "privileged: must not be true",
    ),
    "a capability": (
        with_context(capabilities={"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]}),
        r"capabilities.add: must be empty",
    ),
    "all of /proc": (
        changed(
            with_context(procMount="Unmasked"),
            {"spec": {"template": {"spec": {"hostUsers": False}}}},
        ),
        "procMount: must be Default",
    ),
    "any system call": (
        with_pod({"securityContext": {"seccompProfile": {"type": "Unconfined"}}}),
        "seccompProfile.type Unconfined",
    ),
    "any system call of a container": (
        with_context(seccompProfile={"type": "Unconfined"}),
        "seccompProfile.type Unconfined",
    ),
    "no AppArmor": (
        with_context(appArmorProfile={"type": "Unconfined"}),
        "AppArmor must not be Unconfined",
    ),
    "no AppArmor by annotation": (
        changed(
            DEPLOYMENT,
            {
                "spec": {
                    "template": {
                        "metadata": {
                            "annotations": {
                                "container.apparmor.security.beta.kubernetes.io/vllm": "unconfined"
                            }
                        }
                    }
                }
            },
        ),
        "AppArmor must not be Unconfined",
    ),
    "a label of SELinux": (
        with_context(seLinuxOptions={"type": "spc_t"}),
        "seLinuxOptions is not allowed",
    ),
    "a parameter of the kernel": (
        with_pod({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
        "sysctls: must be empty",
    ),
    "a process of Windows": (
        with_pod({"securityContext": {"windowsOptions": {"runAsUserName": "a"}}}),
        "windowsOptions is not allowed",
    ),
    "a path of the host": (with_volume(hostPath={"path": "/"}), "hostPath, csi and network"),
    "another namespace's weights": (
        with_volume(name="model", hostPath={"path": "/var/lib/tonnage/weights/other"}),
        "hostPath, csi and network",
    ),
    "the weights of all namespaces": (
        with_volume(name="model", hostPath={"path": "/var/lib/tonnage/weights"}),
        "hostPath, csi and network",
    ),
    "a driver of the node": (with_volume(csi={"driver": "a"}), "hostPath, csi and network"),
    "a server of files": (
        with_volume(nfs={"server": "10.0.0.1", "path": "/"}),
        "hostPath, csi and network",
    ),
    "a token": (
        with_volume(projected={"sources": [{"serviceAccountToken": {"path": "token"}}]}),
        "tokens and certificates of ServiceAccounts",
    ),
    "a path of the host in a Job": (
        changed(JOB, {"spec": {"template": {"spec": {"volumes": [HOST_VOLUME, SCRATCH]}}}}),
        "hostPath, csi and network",
    ),
    "the usual token": (
        with_pod({"automountServiceAccountToken": None}),
        "automountServiceAccountToken: must be false",
    ),
}


@pytest.mark.parametrize("case", PODS)
def test_a_pod_that_reaches_beyond_its_namespace_is_refused(
    as_operator: TokenHolder, case: str
) -> None:
    body, want = PODS[case]
    with pytest.raises(ApiError, match=want) as refused:
        as_operator.create(body)
    assert refused.value.code == 403
    assert "ValidatingAdmissionPolicy 'tonnage-pods'" in str(refused.value)


@pytest.mark.parametrize(
    "body",
    [JOB, with_volume(image={"reference": "models/llama:v1"})],
    ids=["a Job that downloads", "an image with a model"],
)
def test_what_brings_a_model_into_a_pod_is_admitted(as_operator: TokenHolder, body: Json) -> None:
    as_operator.create(body)


@pytest.mark.parametrize(("kind", "case"), [("Deployment", "node-disk"), ("Job", "prefetch")])
def test_weights_on_a_node_are_admitted_in_the_directory_of_their_namespace(
    as_operator: TokenHolder, installed: Admin, kind: str, case: str
) -> None:
    body = rendered(kind, case)
    with pytest.raises(ApiError, match="the variable weightsPaths"):
        as_operator.create(body)
    (volume,) = (each for each in volumes_of(body) if "hostPath" in each)
    volume["hostPath"]["path"] = f"/var/lib/tonnage/weights/{installed.namespace}"
    as_operator.create(body)


def test_a_deployment_that_somebody_else_changed_is_scaled_and_not_changed_further(
    as_operator: TokenHolder, installed: Admin
) -> None:
    body = with_volume(hostPath={"path": "/models"})
    body["metadata"]["ownerReferences"] = owned_by(a_model(installed), name="owner")
    installed.apply(body)
    as_operator.update(body, spec={"replicas": 3})
    labels = body["spec"]["template"]["metadata"]["labels"]
    with pytest.raises(ApiError, match="hostPath, csi and network"):
        as_operator.update(body, spec={"template": {"metadata": {"labels": {**labels, "a": "b"}}}})


def test_the_largest_child_is_within_the_cost_of_the_expressions(as_operator: TokenHolder) -> None:
    """An object of a megabyte, with far more of all that expressions go through than a spec may
    have."""
    (container,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    first = {"securityContext": {"allowPrivilegeEscalation": False}, "image": "i"}
    body = with_pod(
        {
            "containers": [{**container, "args": ["x" * 500_000]}],
            "initContainers": [{**first, "name": f"c{number}"} for number in range(200)],
            "volumes": [
                *DEPLOYMENT["spec"]["template"]["spec"]["volumes"],
                *(
                    {
                        "name": f"v{number}",
                        "projected": {"sources": [{"secret": {"name": "a"}}] * 10},
                    }
                    for number in range(500)
                ),
            ],
        }
    )
    body["spec"]["template"]["metadata"]["annotations"] = {
        f"example.com/{number}": "x" for number in range(2000)
    }
    as_operator.create(body)
