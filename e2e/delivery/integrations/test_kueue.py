"""Kueue's queue label reaches the Deployment and its pods; nothing of Kueue's own is touched.

Kueue itself is not there. What its webhooks do to a Deployment is done by an admin, and what they
refuse is refused by an admission policy with the same rule.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.harness.admin import SLOW, Admin
from e2e.harness.rest import ApiError, Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User, argument, condition, has
from e2e.models import inference

QUEUE = "kueue.x-k8s.io/queue-name"
PARENT = "kueue.x-k8s.io/pod-suspending-parent"


def llama(queue: str | None, **spec: object) -> Json:
    manifest = inference("llama", "llama-3.1-8b", max_model_len=8192)
    manifest["spec"] |= spec
    if queue is not None:
        manifest["metadata"]["labels"] = {QUEUE: queue}
    return manifest


def queues(user: User) -> set[str | None]:
    """The queues that the Deployment and its pods are of."""
    children = [*user.children("deployments", "llama"), *user.children("pods", "llama")]
    return {each["metadata"]["labels"].get(QUEUE) for each in children}


@pytest.fixture
def one_queue_while_ready(admin: Admin) -> Iterator[None]:
    """Kueue's rule for Deployments: no other queue while a replica is ready."""
    name = "queue-is-kept"
    rule = (
        "oldObject.?status.readyReplicas.orValue(0) == 0 || "
        f"object.metadata.?labels['{QUEUE}'] == oldObject.metadata.?labels['{QUEUE}']"
    )
    deployments = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "resources": ["deployments"],
        "operations": ["UPDATE"],
    }
    kind = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    admin.apply(
        kind
        | {
            "kind": "ValidatingAdmissionPolicy",
            "spec": {
                "matchConstraints": {"resourceRules": [deployments]},
                "validations": [{"expression": rule, "message": "the queue is immutable"}],
            },
        }
    )
    binding = {"policyName": name, "validationActions": ["Deny"]}
    admin.apply(kind | {"kind": "ValidatingAdmissionPolicyBinding", "spec": binding})
    yield
    admin.delete("validatingadmissionpolicybindings", name)
    admin.delete("validatingadmissionpolicies", name)


def test_pods_have_the_queue_of_the_object(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.apply(llama("gold"))
    user.wait_ready("llama", timeout=SLOW)
    assert queues(user) == {"gold"}


def test_the_queue_of_the_template_overrides_that_of_the_object(
    fleet: UseFleet, user: User
) -> None:
    fleet("tiny")
    user.apply(llama("gold", template={"metadata": {"labels": {QUEUE: "silver"}}}))
    user.wait_ready("llama", timeout=SLOW)
    assert queues(user) == {"silver"}


def test_fields_that_kueue_writes_are_kept(fleet: UseFleet, user: User, admin: Admin) -> None:
    fleet("tiny")
    user.apply(llama("gold"))
    user.wait_ready("llama", timeout=SLOW)
    theirs = {"spec": {"template": {"metadata": {"annotations": {PARENT: "deployment"}}}}}
    admin.patch("deployments", "llama-mi300x", theirs)
    user.wait("llama", lambda status: has("Ready")(status) and annotated(user), timeout=SLOW)
    user.apply(llama("gold", engine={"vllm": {"maxNumSeqs": 77}}))
    user.wait_ready("llama", timeout=SLOW)
    (deployment,) = user.children("deployments", "llama")
    assert argument(deployment, "--max-num-seqs") == "77"
    assert annotated(user)


def annotated(user: User) -> bool:
    """Whether the pods have rolled to the template that Kueue has annotated."""
    pods = [pod["metadata"] for pod in user.children("pods", "llama")]
    return all(PARENT in pod.get("annotations", {}) for pod in pods)


def test_another_queue_rolls_the_pods(fleet: UseFleet, user: User) -> None:
    fleet("tiny")
    user.apply(llama("gold"))
    user.wait_ready("llama", timeout=SLOW)
    user.apply(llama("silver"))
    user.admin.until(
        "the pods to be of the other queue", lambda: queues(user) == {"silver"}, timeout=SLOW
    )
    user.wait_ready("llama", timeout=SLOW)


@pytest.mark.usefixtures("one_queue_while_ready")
def test_a_refused_change_of_the_queue_is_reported_and_replicas_stay_ready(
    fleet: UseFleet, user: User, admin: Admin
) -> None:
    fleet("tiny")
    user.apply(llama("gold"))
    user.wait_ready("llama", timeout=SLOW)
    admin.until("the rule to be in force", lambda: refuses(admin), timeout=SLOW)
    user.apply(llama("silver"))
    status = user.wait("llama", has("Accepted", "False", "ChildRefused"), timeout=SLOW)
    assert "the queue is immutable" in condition(status, "Accepted")["message"]
    assert condition(status, "Available")["status"] == "True"
    assert queues(user) == {"gold"}
    user.apply(llama("gold"))
    user.wait_ready("llama", timeout=SLOW)


def refuses(admin: Admin) -> bool:
    """An admission policy takes effect a moment after it is stored. Tried without a change, which
    the rule might not let be taken back."""
    path = admin.resource("deployments").path(admin.namespace, "llama-mi300x")
    other = {"metadata": {"labels": {QUEUE: "other"}}}
    merge = "application/merge-patch+json"
    try:
        admin.rest.request("PATCH", path, other, query={"dryRun": "All"}, content_type=merge)
    except ApiError as error:
        return "the queue is immutable" in str(error)
    return False
