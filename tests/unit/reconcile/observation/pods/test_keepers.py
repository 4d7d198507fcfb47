"""The container that brings weights to the node of a pod, and one of a user that has its name."""

from typing import Any

import pytest

from tests.support.api_server import cluster_bytes
from tonnage.api.conditions import Reason
from tonnage.api.names import WEIGHTS_CONTAINER
from tonnage.reconcile.observation.child_pods import ChildPod, ContainerEnd, read_pods
from tonnage.reconcile.observation.pods.failures import find_failure

ENV = [{"name": "FOLDER", "value": "/models/acme--m/1"}, {"name": "SIZE", "value": "7"}]
KEEPER = {
    "name": WEIGHTS_CONTAINER,
    "restartPolicy": "Always",
    "env": ENV,
    "volumeMounts": [{"name": "model", "mountPath": "/models"}],
}
OF_USER = {"name": WEIGHTS_CONTAINER, "image": "example.com/fetch"}
DIRECTORY = {"name": "model", "hostPath": {"path": "/weights/chat"}}
ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}


WAITS = {"name": "vllm", "state": {"waiting": {"reason": "PodInitializing"}}}


def pod_with(
    container: dict[str, Any], *volumes: dict[str, Any], state: dict[str, Any] = ENDED
) -> ChildPod:
    body = cluster_bytes.pod(1, owner="llama")
    body["spec"] |= {"initContainers": [container], "volumes": list(volumes)}
    status = {"name": WEIGHTS_CONTAINER, "started": False, "restartCount": 0, "state": state}
    body["status"] |= {"initContainerStatuses": [status], "containerStatuses": [WAITS]}
    body["status"]["conditions"] = []
    (pod,) = read_pods([body])
    return pod


def test_the_end_of_the_operators_container_is_a_failed_download() -> None:
    assert pod_with(KEEPER, DIRECTORY).no_weights == ContainerEnd(0, "Completed", "")


@pytest.mark.parametrize("container", [OF_USER, {**OF_USER, "env": ENV}], ids=["user", "env"])
def test_the_end_of_a_users_container_of_this_name_is_its_own(container: dict[str, Any]) -> None:
    pod = pod_with(container)
    assert (pod.keeper_end, pod.no_weights) == (None, None)


@pytest.mark.parametrize(
    ("waiting", "want"),
    [
        ("ImagePullBackOff", ("ImagePullBackOff", "why")),
        ("CreateContainerConfigError", ("CreateContainerConfigError", "why")),
        ("PodInitializing", ("PodInitializing", "")),
        ("CrashLoopBackOff", ("PodInitializing", "")),
    ],
)
def test_a_pod_waits_for_what_the_container_waits_for(waiting: str, want: tuple[str, str]) -> None:
    state = {"waiting": {"reason": waiting, "message": "why"}}
    assert pod_with(KEEPER, DIRECTORY, state=state).waiting == want
    assert pod_with(OF_USER, state=state).waiting == ("PodInitializing", "")


@pytest.mark.parametrize(
    ("message", "reason", "want"),
    [
        ("the disk is full", "Error", "the disk is full"),
        ("Traceback:\n  File\nKeyError: 'TTL'\n\n", "Error", "KeyError: 'TTL'"),
        ("x" * 4096, "Error", "x" * 300),
        ("", "Error", "exit code 1"),
        ("", "OOMKilled", "exit code 1 (OOMKilled)"),
    ],
)
def test_a_failed_download_is_explained_in_one_line(message: str, reason: str, want: str) -> None:
    state = {"terminated": {"exitCode": 1, "reason": reason, "message": message}}
    pod = pod_with(KEEPER, DIRECTORY, state=state)
    failure = find_failure([pod], {})
    assert failure is not None
    assert (failure.reason, failure.words) == (
        Reason.WEIGHTS_NOT_DOWNLOADED,
        f"{want} (node {pod.node})",
    )
