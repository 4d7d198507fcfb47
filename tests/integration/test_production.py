"""A real API server and a real scheduler say what the doubles of the cluster in memory say."""

from collections.abc import Iterator, Mapping
from typing import Final

import pytest

from e2e.harness.admin import Admin
from e2e.harness.rest import ApiError
from e2e.harness.stack import Stack
from e2e.nodes.fleet import apply_fleet
from tests.support.production.contract import (
    JUDGED,
    REFUSED,
    UNSCHEDULABLE,
    Judged,
    Refused,
    holder_of,
    in_namespace,
    pod_of,
    service_of,
)
from tests.support.production.quotas import resource_quota
from tonnage.kube.kinds import PODS, SECRETS, SERVICES
from tonnage.kube.protocol import Kind, Object

ENFORCE: Final = "pod-security.kubernetes.io/enforce"
TIMEOUT_SECONDS: Final = 120.0
"""Nothing takes so long but on a machine with far more to do than it has cores."""


@pytest.fixture
def no_nodes(control_plane: Stack, admin: Admin, namespace: str) -> Iterator[None]:
    """No node is left of this test, and no pod, which only the kubelet of its node ends soon."""
    yield
    for pod in admin.items("pods"):
        admin.delete("pods", pod["metadata"]["name"], timeout=TIMEOUT_SECONDS)
    apply_fleet(control_plane.access, {"groups": [{"name": "none", "count": 0}]}, prune=True)


def refusal_of(admin: Admin, body: Object, kind: Kind = PODS) -> ApiError | None:
    """Why the API server refuses the object, None where it admits it."""
    path = f"/api/v1/namespaces/{body['metadata']['namespace']}/{kind.plural}"
    try:
        admin.rest.request("POST", path, body, query={"dryRun": "All"})
    except ApiError as error:
        return error
    return None


def await_refusal(admin: Admin, body: Object, kind: Kind, words: str) -> None:
    """Wait until the API server refuses the object in these words: it learns of quotas and
    namespaces by watches."""
    admin.until(words, lambda: words in str(refusal_of(admin, body, kind)), timeout=TIMEOUT_SECONDS)


def try_object(admin: Admin, refused: Refused, namespace: str) -> str:
    """The message with which the object is refused."""
    is_service = refused.kind == SERVICES
    body = service_of(namespace) if is_service else pod_of(namespace, refused.change)
    error = refusal_of(admin, body, refused.kind)
    assert error is not None
    assert error.code == (422 if refused.is_invalid else 403)
    return str(error)


def is_admitted(admin: Admin, judged: Judged, namespace: str) -> bool:
    """Whether the API server admits the pod. Raises ApiError for any other error."""
    error = refusal_of(admin, pod_of(namespace, judged.change))
    if error is None:
        return True
    if error.code == 403 or "must be less than or equal to" in str(error):
        return False
    raise error


def administer(admin: Admin, body: Object, namespace: str) -> None:
    """Apply it; a quota counts once its controller has read it, and the API server knows it once it
    knows a later one."""
    _administer(admin, in_namespace(body, namespace))
    if body["kind"] == "ResourceQuota":
        _administer(admin, resource_quota({"count/secrets": 0}, "later", namespace))
        secret = {"metadata": {"name": "tried", "namespace": namespace}}
        await_refusal(admin, secret, SECRETS, "exceeded quota: later")


def _administer(admin: Admin, body: Object) -> None:
    admin.apply(body)
    if body["kind"] == "ResourceQuota":
        admin.wait_for(
            "resourcequotas",
            body["metadata"]["name"],
            lambda quota: quota["status"].get("hard"),
            timeout=TIMEOUT_SECONDS,
        )


def label(admin: Admin, namespace: str, labels: Mapping[str, str]) -> None:
    """Label the namespace, and wait until the API server enforces its Pod Security Standard: each
    but `privileged` refuses the network of the node."""
    admin.patch("namespaces", namespace, {"metadata": {"labels": dict(labels)}})
    if labels.get(ENFORCE, "privileged") != "privileged":
        body = pod_of(namespace, lambda spec: spec.update(hostNetwork=True))
        await_refusal(admin, body, PODS, "violates PodSecurity")


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_in_the_servers_words(case: str, admin: Admin, namespace: str) -> None:
    refused = REFUSED[case]
    for body in refused.bodies:
        administer(admin, body, namespace)
    label(admin, namespace, dict(refused.labels))
    want = refused.message.format(namespace=namespace)
    assert want in try_object(admin, refused, namespace)


@pytest.mark.parametrize("case", JUDGED)
def test_a_pod_is_admitted_or_refused(case: str, admin: Admin, namespace: str) -> None:
    judged = JUDGED[case]
    for body in judged.limits:
        administer(admin, body, namespace)
    label(admin, namespace, {ENFORCE: judged.level})
    assert is_admitted(admin, judged, namespace) is judged.is_admitted


@pytest.mark.parametrize("case", UNSCHEDULABLE)
def test_a_pod_that_fits_nowhere_has_the_schedulers_message(
    case: str, admin: Admin, control_plane: Stack, namespace: str, no_nodes: None
) -> None:
    unschedulable = UNSCHEDULABLE[case]
    apply_fleet(control_plane.access, {"groups": list(unschedulable.groups)}, prune=True)
    for body in unschedulable.bodies:
        admin.apply({**in_namespace(body, namespace), "spec": CLAIM_SPEC})
    if unschedulable.holder is not None:
        admin.apply(holder_of(namespace, unschedulable.holder))
    admin.apply(pod_of(namespace, unschedulable.change))

    def message(pod: Object) -> str:
        conditions = (pod.get("status") or {}).get("conditions") or []
        return next((one["message"] for one in conditions if one["status"] == "False"), "")

    wanted = unschedulable.message
    admin.wait_for(
        "pods",
        "tried",
        lambda pod: message(pod) == wanted,
        timeout=TIMEOUT_SECONDS,
        why=wanted,
    )
    pod = admin.get("pods", "tried")
    assert pod is not None
    (condition,) = pod["status"]["conditions"]
    assert (condition["type"], condition["reason"]) == ("PodScheduled", "Unschedulable")
    assert condition["lastTransitionTime"]


CLAIM_SPEC = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
    "storageClassName": "none",
}
"""A class that no provisioner serves: the claim stays Pending."""
