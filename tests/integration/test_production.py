"""A real API server and a real scheduler say what the doubles of the cluster in memory say."""

from collections.abc import Iterator

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
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object


@pytest.fixture
def no_nodes(control_plane: Stack, admin: Admin, namespace: str) -> Iterator[None]:
    """No node is left of this test, and no pod, which only the kubelet of its node ends soon."""
    yield
    for pod in admin.items("pods"):
        admin.delete("pods", pod["metadata"]["name"])
    apply_fleet(control_plane.access, {"groups": [{"name": "none", "count": 0}]}, prune=True)


def try_object(admin: Admin, refused: Refused, namespace: str) -> str:
    """The message with which the object is refused."""
    is_service = refused.kind == SERVICES
    body = service_of(namespace) if is_service else pod_of(namespace, refused.change)
    path = f"/api/v1/namespaces/{namespace}/{refused.kind.plural}"
    with pytest.raises(ApiError) as error:
        admin.rest.request("POST", path, body, query={"dryRun": "All"})
    assert error.value.code == (422 if refused.is_invalid else 403)
    return str(error.value)


def is_admitted(admin: Admin, judged: Judged, namespace: str) -> bool:
    """Whether the API server admits the pod. Raises ApiError for any other error."""
    body = pod_of(namespace, judged.change)
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        admin.rest.request("POST", path, body, query={"dryRun": "All"})
    except ApiError as error:
        if error.code == 403 or "must be less than or equal to" in str(error):
            return False
        raise
    return True


def administer(admin: Admin, body: Object, namespace: str) -> None:
    """Apply it; a quota counts once its controller has read it."""
    admin.apply(in_namespace(body, namespace))
    if body["kind"] == "ResourceQuota":
        name = body["metadata"]["name"]
        admin.wait_for("resourcequotas", name, lambda quota: quota["status"].get("hard"))


@pytest.mark.parametrize("case", REFUSED)
def test_a_refusal_is_in_the_servers_words(case: str, admin: Admin, namespace: str) -> None:
    refused = REFUSED[case]
    for body in refused.bodies:
        administer(admin, body, namespace)
    admin.patch("namespaces", namespace, {"metadata": {"labels": dict(refused.labels)}})
    want = refused.message.format(namespace=namespace)
    assert want in try_object(admin, refused, namespace)


@pytest.mark.parametrize("case", JUDGED)
def test_a_pod_is_admitted_or_refused(case: str, admin: Admin, namespace: str) -> None:
    judged = JUDGED[case]
    for body in judged.limits:
        administer(admin, body, namespace)
    labels = {"pod-security.kubernetes.io/enforce": judged.level}
    admin.patch("namespaces", namespace, {"metadata": {"labels": labels}})
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
    admin.wait_for("pods", "tried", lambda pod: message(pod) == wanted, why=wanted)
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
