"""What the operator reads of pods that get GPUs by claims, and why one does not start."""

import pytest

from tonnage.api.conditions import Reason
from tonnage.reconcile.observation.child_pods import ChildPod, read_pods
from tonnage.reconcile.observation.pods.failures import _explain_pod
from tonnage.reconcile.observation.pods.reports import choose_event, waits_for_creation

CEL = "CEL runtime error: no such key: family"


def pod(condition: dict[str, str] | None, claimed: int = 8) -> ChildPod:
    body = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-11-27T07:00:00Z"},
        "spec": {"resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "t"}]},
        "status": {"conditions": [{"type": "PodScheduled", **condition}] if condition else []},
    }
    (read,) = read_pods([body], {"t": claimed})
    return read


def event(reason: str, note: str) -> dict[str, str]:
    return {"reason": reason, "note": note, "type": "Warning"}


def test_a_pod_has_as_many_gpus_as_its_claim() -> None:
    assert pod(None, claimed=4).gpus == 4


@pytest.mark.parametrize(
    ("reason", "message", "expected"),
    [
        ("SchedulerError", CEL, f"SchedulerError: {CEL}"),
        (
            "Unschedulable",
            "0/3 nodes are available: 3 cannot allocate all claims.",
            "0/3 nodes are available: 3 cannot allocate all claims.",
        ),
        (
            "Unschedulable",
            "request gpus: device class gpu.none.com does not exist",
            "request gpus: device class gpu.none.com does not exist",
        ),
    ],
)
def test_the_words_of_the_scheduler_are_the_cause(reason: str, message: str, expected: str) -> None:
    refused = pod({"status": "False", "reason": reason, "message": message})
    assert _explain_pod(refused, "", None) == (Reason.UNSCHEDULABLE, expected)
    assert not refused.unclaimed


def test_a_resource_that_the_scheduler_does_not_turn_into_claims_is_explained() -> None:
    resource = "deviceclass.resource.kubernetes.io/gpu.amd.com"
    message = f"0/3 nodes are available: 3 Insufficient {resource}."
    refused = pod({"status": "False", "reason": "Unschedulable", "message": message})
    reason, words = _explain_pod(refused, "", None) or (None, "")
    assert reason is Reason.UNSCHEDULABLE
    assert words == (
        f"0/3 nodes are available: 3 Insufficient {resource}; the scheduler turns {resource} into "
        "claims only where DeviceClass gpu.amd.com exists and feature gate DRAExtendedResource is "
        "on; set it on all components of the control plane, or set spec.allocation of the "
        "AcceleratorPool to ResourceClaim"
    )


def test_a_pod_whose_claim_is_not_created_is_explained_by_its_event() -> None:
    """Such a pod has no condition PodScheduled: the scheduler has not tried it."""
    unclaimed = pod(None)
    assert waits_for_creation(unclaimed)
    note = 'ResourceClaimTemplate "t" not found'
    chosen = choose_event(unclaimed, [event("FailedResourceClaimCreation", note)])
    reason, words = _explain_pod(unclaimed, "", chosen) or (None, "")
    assert reason is Reason.CONTAINER_NOT_CREATED
    assert words == f"FailedResourceClaimCreation: {note}"


def test_a_pod_without_an_event_waits_for_its_claims() -> None:
    chosen = choose_event(pod(None), [])
    assert (chosen.reason, chosen.warning) == ("WaitingForResourceClaims", False)


def test_a_driver_that_does_not_answer_is_named_by_the_kubelet() -> None:
    """Its ResourceSlices stay, so the pod is bound to the node and waits there."""
    body = {
        "metadata": {"name": "p", "uid": "u", "creationTimestamp": "2026-11-27T07:00:00Z"},
        "spec": {"nodeName": "n", "resourceClaims": []},
        "status": {
            "containerStatuses": [
                {"name": "vllm", "state": {"waiting": {"reason": "ContainerCreating"}}}
            ]
        },
    }
    (bound,) = read_pods([body])
    assert waits_for_creation(bound)
    note = "failed to prepare dynamic resources: DRA driver gpu.nvidia.com is not registered"
    chosen = choose_event(bound, [event("FailedPrepareDynamicResources", note)])
    reason, words = _explain_pod(bound, "", chosen) or (None, "")
    assert reason is Reason.CONTAINER_NOT_CREATED
    assert words == f"FailedPrepareDynamicResources on node n: {note}"
