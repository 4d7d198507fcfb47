"""Reading a Pod object: the GPUs it holds, and its owner."""

from typing import Any

import pytest

from tests.support.fleets.gpu_nodes import gpu_pod_body
from tonnage.fleet.nodes.pod import read_gpu_pod, read_other_requests
from tonnage.fleet.resources import Resources


def container(gpus: object, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"nvidia.com/gpu": gpus}}, **more}


REQUESTS: dict[str, tuple[dict[str, Any], int]] = {
    "one container": ({"containers": [container("4")]}, 4),
    "containers run together": ({"containers": [container("4"), container("2")]}, 6),
    "an init container runs before them": (
        {"containers": [container("4")], "initContainers": [container("1")]},
        4,
    ),
    "a large init container decides": (
        {"containers": [container("1")], "initContainers": [container("4"), container("2")]},
        4,
    ),
    "a sidecar runs next to them": (
        {
            "containers": [container("4")],
            "initContainers": [container("1", restartPolicy="Always")],
        },
        5,
    ),
    "an init container runs next to the sidecars before it": (
        {
            "containers": [container("1")],
            "initContainers": [
                container("2", restartPolicy="Always"),
                container("4"),
                container("1", restartPolicy="Always"),
            ],
        },
        6,
    ),
    "a limit without a request": (
        {"containers": [{"resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        2,
    ),
    "an invalid quantity is not counted": (
        {"containers": [container("4"), container("lots"), container(-3)]},
        4,
    ),
}


@pytest.mark.parametrize(("spec", "want"), REQUESTS.values(), ids=REQUESTS.keys())
def test_the_gpus_that_the_scheduler_allocates(spec: dict[str, Any], want: int) -> None:
    pod = read_gpu_pod({"metadata": {"uid": "u"}, "spec": spec})
    assert pod is not None
    assert pod.requests == {"nvidia.com/gpu": want}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_pod_holds_nothing(phase: str) -> None:
    assert read_gpu_pod(gpu_pod_body("done", node="n", phase=phase, gpus={"nvidia": "1"})) is None


def test_a_pod_without_gpus_is_not_read() -> None:
    assert read_gpu_pod(gpu_pod_body("web", node="n")) is None
    assert read_gpu_pod(gpu_pod_body("web", node="n", gpus={"nvidia": "0"})) is None


def test_a_pod_that_is_being_deleted_holds_its_gpus_until_it_is_gone() -> None:
    body = gpu_pod_body("leaving", node="n", gpus={"nvidia": "2"})
    body["metadata"]["deletionTimestamp"] = "2026-11-21T12:00:00Z"
    pod = read_gpu_pod(body)
    assert pod is not None
    assert pod.requests == {"nvidia.com/gpu": 2}


def test_pods_of_a_deployment_have_owner_and_placement() -> None:
    labels = {"tonnage.dev/inferencedeployment": "llama", "tonnage.dev/placement": "mi300x"}
    pod = read_gpu_pod(gpu_pod_body("llama-0", labels=labels, gpus={"amd": "1"}))
    assert pod is not None
    assert (pod.owner, pod.placement, pod.node) == (("chat", "llama"), "mi300x", None)


HOSTILE: dict[str, dict[str, Any]] = {
    "nothing at all": {},
    "containers are text": {"spec": {"containers": "a"}},
    "containers hold nulls": {"spec": {"containers": [None, 1, {"resources": []}]}},
    "labels are numbers": gpu_pod_body("p", labels={"tonnage.dev/inferencedeployment": 5}),
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_pod_is_read_without_an_error(body: dict[str, Any]) -> None:
    assert read_gpu_pod(body) is None


def test_an_owner_label_that_is_no_text_is_ignored() -> None:
    body = gpu_pod_body("p", labels={"tonnage.dev/inferencedeployment": 5}, gpus={"nvidia": "1"})
    pod = read_gpu_pod(body)
    assert pod is not None
    assert pod.owner is None


def asking(cpu: str, **more: Any) -> dict[str, Any]:
    return {"resources": {"requests": {"cpu": cpu, "nvidia.com/gpu": "1"}}, **more}


OTHER_REQUESTS: dict[str, tuple[dict[str, Any], Resources]] = {
    "containers run together": ({"containers": [asking("1"), asking("500m")]}, Resources(1500)),
    "a large init container decides": (
        {"containers": [asking("1")], "initContainers": [asking("4")]},
        Resources(4000),
    ),
    "a limit without a request is the request": (
        {"containers": [{"resources": {"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}}}]},
        Resources(1000, 2**30),
    ),
    "requests of the whole pod replace their sum": (
        {"containers": [asking("1")], "resources": {"requests": {"cpu": "6"}}},
        Resources(6000),
    ),
    "the overhead of a RuntimeClass is added": (
        {"containers": [asking("1")], "overhead": {"cpu": "250m", "ephemeral-storage": "1Gi"}},
        Resources(1250, 0, 2**30),
    ),
    "nothing": ({"containers": [{}]}, Resources()),
}


@pytest.mark.parametrize(("spec", "want"), OTHER_REQUESTS.values(), ids=OTHER_REQUESTS)
def test_other_requests_are_what_the_scheduler_counts(
    spec: dict[str, Any], want: Resources
) -> None:
    assert read_other_requests(spec) == want


def test_a_pod_with_gpus_has_its_other_requests() -> None:
    pod = read_gpu_pod({"spec": {"containers": [asking("3")]}})
    assert pod is not None
    assert (pod.requests, pod.others) == ({"nvidia.com/gpu": 1}, Resources(3000))
