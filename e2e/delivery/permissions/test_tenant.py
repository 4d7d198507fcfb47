"""A user who may create InferenceDeployments in one namespace can do nothing else by that.
test_tenant_pods.py has the fields of pods.

The threat model in SECURITY.md names these tests.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

from e2e.delivery.permissions.tenants import Tenant, llama
from e2e.harness.admin import Admin
from e2e.harness.operator_process import CORRECTIONS, NAMESPACE, USER, OperatorProcess
from e2e.harness.rest import ApiError, Json
from e2e.harness.stack import Stack
from e2e.journeys.user import condition, has
from e2e.models import token_secret
from e2e.nodes.behaviours import KEY, WELL_KEY
from tests.support.foreign.hub_server import Answer, HubServer

HUB = "http://93.184.216.34"
"""Of the whole world, as the real one is; the server of the tests answers for it as a proxy."""

METADATA = "http://169.254.169.254/latest/meta-data/"


@pytest.fixture(scope="module")
def hub() -> Iterator[HubServer]:
    with HubServer() as server:
        yield server


@pytest.fixture(scope="module")
def operator(
    control_plane: Stack,
    installed: Admin,
    hub: HubServer,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[OperatorProcess]:
    folder = tmp_path_factory.mktemp("operator")
    environment = {"HF_ENDPOINT": HUB, "HF_HOME": str(folder / "hub")}
    environment |= {"http_proxy": hub.endpoint, "no_proxy": "127.0.0.1"}
    process = OperatorProcess(control_plane, folder, environment=environment)
    process.start()
    yield process
    process.close()


def from_hub(name: str, **source: Any) -> Json:
    return llama(name, model={"source": {"huggingFace": {"repo": f"acme/{name}", **source}}})


def assert_others_are_served(tenant: Tenant, operator: OperatorProcess, name: str) -> None:
    """As they are by an operator that has just begun, which reads all there is."""
    tenant.create(llama(name))
    tenant.user.wait_ready(name)
    assert operator.stop() == 0
    operator.start()
    tenant.create(llama(f"{name}-again"))
    tenant.user.wait_ready(f"{name}-again")


def test_an_object_with_the_deepest_nesting_affects_no_other(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    body = llama("deep")
    body["spec"]["model"]["source"]["inline"]["config"]["nested"] = "here"
    text = json.dumps(body).replace('"here"', "[" * 9_000 + "]" * 9_000)
    tenant.user.admin.kubectl("create", "--raw", tenant.path, "-f", "-", text=text)

    def is_reported() -> bool:
        return b"nested deeper than 100 levels" in tenant.rest.raw("GET", f"{tenant.path}/deep")

    try:
        tenant.user.admin.until("the status to report it", is_reported)
        assert_others_are_served(tenant, operator, "next-to-deep")
    finally:
        tenant.rest.raw("DELETE", f"{tenant.path}/deep")


FORGED = {
    "numbers without end": '{"tensorParallelSize":' + "9" * 4_300 + ',"maxNumSeqs":1e999}',
    "depth": '{"pool":' + "[" * 20_000 + "]" * 20_000 + "}",
    "another shape": '{"pool":[{}],"accelerator":{},"correctionBytes":"x","beside":"yes"}',
}


def controlled_by(owner: Json) -> list[Json]:
    """References as the operator's children have them."""
    kind = {"apiVersion": "tonnage.dev/v1alpha1", "kind": "InferenceDeployment"}
    return [{**kind, "name": owner["name"], "uid": owner["uid"], "controller": True}]


def forged_deployment(number: int, owner: Json, text: str) -> Json:
    """A Deployment that looks like a child of the owner, as its labels and references have it."""
    labels = {"number": str(number)}
    pod = {"containers": [{"name": "vllm", "image": "i"}]}
    keys = ("placement", "moved", "placed-for", "template", "rendered")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": f"owner-forged-{number}",
            "labels": {"tonnage.dev/inferencedeployment": "owner"},
            "annotations": {f"tonnage.dev/{key}": text for key in keys},
            "ownerReferences": controlled_by(owner),
        },
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }


def test_forged_annotations_on_deployments_affect_no_other_object(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    owner = tenant.create(llama("owner", replicas=0))["metadata"]
    tenant.user.admin.apply(
        forged_deployment(number, owner, text) for number, text in enumerate(FORGED.values())
    )
    assert_others_are_served(tenant, operator, "next-to-forged")


def test_secrets_of_other_namespaces_are_never_requested(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    admin = tenant.user.admin
    with_slash = {"name": "../default/secrets/hf"}
    with pytest.raises(ApiError, match="name"):
        tenant.create(from_hub("slash", tokenSecretRef=with_slash))
    mark = admin.audit_mark()
    secret = token_secret("hf", "hf_VictimsToken")
    secret["metadata"]["namespace"] = "default"
    admin.apply(secret)
    elsewhere = {"name": "hf", "namespace": "default"}
    tenant.create(from_hub("thief", tokenSecretRef=elsewhere))
    status = tenant.user.wait("thief", has("Accepted", "False", "ModelAccessDenied"))
    where = f"Secret {tenant.user.namespace}/hf not found"
    assert where in condition(status, "Accepted")["message"]
    assert secrets_asked_for(admin, mark) == {
        f"/api/v1/namespaces/{tenant.user.namespace}/secrets/hf"
    }
    admin.delete("secrets", "hf", "default")


def secrets_asked_for(admin: Admin, mark: int) -> set[str]:
    """The paths of all Secrets for which the operator asked."""
    return {
        event["requestURI"].split("?")[0]
        for event in admin.requests(USER, since=mark)
        if event.get("objectRef", {}).get("resource") == "secrets"
    }


def test_no_secret_but_tokens_can_be_read_by_naming_it(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    """Neither by an object nor by whom has the operator's token."""
    admin, mine = tenant.user.admin, tenant.user.namespace
    admin.apply(token_secret("database", "password"))
    tenant.create(from_hub("curious", tokenSecretRef={"name": "database"}))
    status = tenant.user.wait("curious", has("Accepted", "False", "ModelAccessDenied"))
    message = condition(status, "Accepted")["message"]
    assert f"Secret {mine}/database may not be read by the operator; a Role in" in message
    assert "tonnage_permission_missing{" not in operator.metrics()
    for namespace in (mine, "default", "kube-system", NAMESPACE):
        assert not admin.allows(USER, "get", "secrets", namespace)
        assert not admin.allows(USER, "get", "secrets", namespace, name="database")
        assert admin.allows(USER, "get", "secrets", namespace, name="hf")


def test_neither_a_hub_nor_a_redirect_makes_the_operator_send_requests_into_the_cluster(
    tenant: Tenant, operator: OperatorProcess, hub: HubServer
) -> None:
    hub.trouble = Answer(302, {"Location": METADATA})
    theirs = [{"name": "HF_ENDPOINT", "value": "http://10.96.0.1"}]
    revision = "../../api/v1/secrets?x=#"
    body, quoted = from_hub("inwards", revision=revision), quote(revision, safe="")
    tenant.create({**body, "spec": {**body["spec"], "engine": {"vllm": {"env": theirs}}}})
    status = tenant.user.wait("inwards", has("Accepted", "False", "ModelSourceUnreachable"))
    assert "from a narrower network" in condition(status, "Accepted")["message"]
    assert hub.requests
    assert all(asked.startswith(f"GET {HUB}/api/") for asked in hub.requests), hub.requests
    assert f"GET {HUB}/api/models/acme/inwards/revision/{quoted}?blobs=true" in hub.requests


def test_a_foreign_deployment_is_not_adopted(tenant: Tenant, operator: OperatorProcess) -> None:
    """It has the name and the labels, and another object as its controller. A user who
    cannot have the name holds no GPUs for it."""
    victim = tenant.create(llama("victim", replicas=0))["metadata"]
    (made,) = tenant.user.admin.apply(
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "thief",
                "labels": {"tonnage.dev/inferencedeployment": "thief"},
                "ownerReferences": controlled_by(victim),
            },
            "spec": {"ports": [{"port": 1}], "selector": {"a": "b"}},
        }
    )
    tenant.create(llama("thief", behaviour="never-ready"))
    tenant.user.wait("thief", has("Accepted", "False", "NameConflict"))
    tenant.user.admin.until(
        "the GPUs to be given back", lambda: not tenant.user.children("deployments", "thief")
    )
    service = tenant.user.admin.get("services", "thief")
    assert service is not None
    assert service["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


def place_of(status: Json) -> tuple[str, int, float | None]:
    """Accelerator, tensor parallel size and memory correction of the placement."""
    (placement,) = status["placements"]
    correction = placement["memory"].get("correctionGiB")
    return placement["accelerator"], placement["tensorParallelSize"], correction


def test_a_memory_correction_of_a_tenant_counts_in_no_other_namespace(
    tenant: Tenant, operator: OperatorProcess
) -> None:
    """A failed start with the default image that names the missing memory."""
    admin, mine = tenant.user.admin, tenant.user.namespace
    tenant.create(llama("before"))
    want = place_of(tenant.user.wait_ready("before"))
    words = {KEY: "out-of-memory", WELL_KEY: "--tensor-parallel-size=2"}
    tenant.create(llama("liar", template={"metadata": {"annotations": words}}))
    tenant.user.wait_ready("liar", timeout=300)
    correction = f"learntOf: {mine}/liar\n"
    admin.wait_for(
        "configmaps",
        CORRECTIONS,
        lambda config_map: any(
            correction in entry for entry in (config_map.get("data") or {}).values()
        ),
        NAMESPACE,
    )
    tenant.create(llama("believer"))
    assert place_of(tenant.user.wait_ready("believer")) != want
    victim = llama("victim")
    victim["metadata"]["namespace"] = "default"
    admin.apply(victim)
    current = admin.wait_for(
        "infd", "victim", lambda model: has("Ready")(model.get("status") or {}), "default"
    )
    assert place_of(current["status"]) == want
    admin.delete("infd", "victim", "default")


def test_the_operator_has_no_permission_that_a_tenant_could_use(installed: Admin) -> None:
    """What it may do for a tenant is bounded by these: it can neither bind roles nor run pods, but
    for those of workloads and Jobs, which the admission policies bound."""
    never = [
        ("create", "pods"),
        ("create", "pods/exec"),
        ("create", "serviceaccounts/token"),
        ("get", "secrets"),
        ("list", "secrets"),
        ("watch", "secrets"),
        ("create", "rolebindings.rbac.authorization.k8s.io"),
        ("impersonate", "users"),
        ("update", "inferencedeployments.tonnage.dev"),
        ("patch", "nodes"),
        ("create", "daemonsets.apps"),
        ("create", "cronjobs.batch"),
    ]
    assert installed.allows(USER, "create", "deployments.apps", "default")
    assert [right for right in never if installed.allows(USER, *right, "default")] == []
