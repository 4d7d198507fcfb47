"""The operator reads partial objects as it reads full ones."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.api_server import cluster_bytes
from tests.support.fleets import dra_objects, gpu_nodes
from tonnage.api.names import WEIGHTS_CONTAINER
from tonnage.fleet.dra.read import read_claim, read_slice
from tonnage.fleet.model import KeptWeights
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.informers.owners import owner_keys
from tonnage.kube.kinds import (
    DEPLOYMENTS,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.objects import ObjectParser
from tonnage.kube.protocol import Kind, Object, ObjectParts, TransientError, WatchEvent
from tonnage.reconcile.observation.child_pods import read_pods
from tonnage.workloads.claim_template import claim_template_names


def parser_of(kind: Kind) -> ObjectParser:
    is_partial = kind in (NODES, PODS, RESOURCE_SLICES, RESOURCE_CLAIMS)
    return ObjectParser(kind, ObjectParts.PARTIAL if is_partial else ObjectParts.METADATA)


def line(obj: Object, event_type: str = "MODIFIED") -> bytes:
    return json.dumps({"type": event_type, "object": obj}).encode()


def with_identity(obj: Object) -> Object:
    """With the metadata of each object that an API server sends."""
    metadata = {"uid": "u", "resourceVersion": "7", **obj["metadata"]}
    return {**obj, "metadata": metadata}


def uncommon_node() -> Object:
    node = cluster_bytes.node(1)
    node["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    node["metadata"]["labels"] |= {"nvidia.com/mig.config.state": "pending", "odd": 7}
    node["spec"] = {"unschedulable": True, "taints": [{"key": "a"}, {"value": "no key"}]}
    node["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    node["status"]["nodeInfo"] = {"operatingSystem": "windows"}
    return node


def uncommon_pod() -> Object:
    pod = cluster_bytes.pod(1, owner="llama")
    pod["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    gpus = {"resources": {"limits": {"nvidia.com/gpu": "2"}}}
    pod["spec"]["initContainers"] = [{**gpus, "restartPolicy": "Always"}, gpus]
    del pod["spec"]["nodeName"]
    return pod


def keeping_pod() -> Object:
    """A pod that brings weights to the disk of its node."""
    pod = cluster_bytes.pod(1, owner="llama")
    pod["spec"]["initContainers"] = [
        {
            "name": WEIGHTS_CONTAINER,
            "restartPolicy": "Always",
            "command": ["python3"],
            "env": [
                {"name": "FOLDER", "value": "/models/acme--kept/1"},
                {"name": "SIZE", "value": "7"},
                {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
            ],
            "volumeMounts": [{"name": "model", "mountPath": "/models"}],
        }
    ]
    pod["spec"]["volumes"] = [{"name": "model", "hostPath": {"path": "/weights/chat"}}]
    ended = {"exitCode": 3, "reason": "Error", "message": "the disk is full"}
    status = {"name": WEIGHTS_CONTAINER, "restartCount": 1, "lastState": {"terminated": ended}}
    pod["status"]["initContainerStatuses"] = [status]
    return pod


def read_keeper(body: Object) -> object:
    (pod,) = read_pods([body])
    gpu_pod = read_gpu_pod(body)
    assert gpu_pod is not None
    assert gpu_pod.weights == KeptWeights("/weights/chat", "/models/acme--kept/1", 7)
    assert pod.no_weights is not None
    return gpu_pod, pod.no_weights, pod.times


def uncommon_slice() -> Object:
    """Devices of several nodes: a tainted one, and one that shares counters with others."""
    body = dra_objects.gpu_slice("n", dra_objects.MI300X, gpus=3)
    tainted, partition, _ = body["spec"]["devices"]
    tainted["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    partition["consumesCounters"] = [{"counterSet": "gpu-1", "counters": {}}]
    for number, device in enumerate(body["spec"]["devices"]):
        device["nodeName"] = f"n-{number}"
    del body["spec"]["nodeName"]
    return with_identity({**body, "spec": body["spec"] | {"perDeviceNodeSelection": True}})


def metadata_only(obj: Object) -> object:
    return obj["metadata"]["name"], obj["metadata"]["ownerReferences"]


OBJECTS: dict[str, tuple[Kind, Object, Callable[[Any], object]]] = {
    "a node": (NODES, cluster_bytes.node(1), read_node),
    "another node": (NODES, with_identity(gpu_nodes.nvidia_node("n", cordoned=True)), read_node),
    "a node with everything": (NODES, uncommon_node(), read_node),
    "a node without anything": (NODES, with_identity({"metadata": {"name": "n"}}), read_node),
    "a pod": (PODS, cluster_bytes.pod(1, owner="llama"), read_gpu_pod),
    "a pod with everything": (PODS, uncommon_pod(), read_gpu_pod),
    "a pod that keeps weights": (PODS, keeping_pod(), read_keeper),
    "a pod with claims": (
        PODS,
        with_identity(
            {
                "metadata": {"name": "p", "namespace": "chat"},
                "spec": {
                    "containers": [{"name": "vllm"}],
                    "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": "t"}],
                },
            }
        ),
        lambda body: (read_gpu_pod(body) is not None, claim_template_names(body)),
    ),
    "a ResourceSlice": (RESOURCE_SLICES, with_identity(dra_objects.gpu_slice("n")), read_slice),
    "a ResourceSlice with everything": (RESOURCE_SLICES, uncommon_slice(), read_slice),
    "a ResourceSlice without devices": (
        RESOURCE_SLICES,
        with_identity(dra_objects.raw_slice("n", [])),
        read_slice,
    ),
    "an allocated claim": (
        RESOURCE_CLAIMS,
        with_identity(dra_objects.claim("c", "n", ["gpu-0", "gpu-1"], pods=["p"])),
        read_claim,
    ),
    "a claim with admin access": (
        RESOURCE_CLAIMS,
        with_identity(dra_objects.claim("c", "n", ["gpu-0"], admin=True)),
        read_claim,
    ),
    "a claim that waits": (
        RESOURCE_CLAIMS,
        with_identity({"metadata": {"name": "c", "namespace": "chat"}, "status": {}}),
        read_claim,
    ),
    "a pod that has failed": (
        PODS,
        with_identity(gpu_nodes.gpu_pod_body("p", phase="Failed", gpus={"amd": "1"})),
        read_gpu_pod,
    ),
    "a Deployment": (DEPLOYMENTS, cluster_bytes.deployment(1), metadata_only),
    "a Service": (SERVICES, cluster_bytes.deployment(2), metadata_only),
}


@pytest.mark.parametrize(("kind", "full", "read"), OBJECTS.values(), ids=OBJECTS)
def test_a_partial_object_reads_as_the_full_one_does(
    kind: Kind, full: Object, read: Callable[[Any], object]
) -> None:
    partial = parser_of(kind).event(line(full)).object
    assert read(partial) == read(full)
    assert owner_keys(kind, partial) == owner_keys(kind, full)
    for name in ("uid", "resourceVersion"):
        assert partial["metadata"][name] == full["metadata"][name]
    assert "managedFields" not in partial["metadata"]


def test_a_list_is_read_page_by_page() -> None:
    pods = [cluster_bytes.pod(number) for number in range(3)]
    metadata = {"continue": "more", "resourceVersion": "42", "remainingItemCount": 4}
    page = parser_of(PODS).page(json.dumps({"metadata": metadata, "items": pods}).encode())
    assert [read_gpu_pod(each) for each in page.objects] == [read_gpu_pod(pod) for pod in pods]
    assert (page.token, page.version) == ("more", "42")


@pytest.mark.parametrize("items", [{}, {"items": None}, {"items": []}], ids=str)
def test_an_empty_list_is_the_last_page(items: Object) -> None:
    body = json.dumps({"metadata": {"resourceVersion": "42"}, **items}).encode()
    page = parser_of(NODES).page(body)
    assert (list(page.objects), page.token) == ([], "")


@pytest.mark.parametrize("kind", [NODES, PODS, DEPLOYMENTS, SERVICES])
def test_errors_and_bookmarks_are_passed_on_unchanged(kind: Kind) -> None:
    status = {"kind": "Status", "status": "Failure", "code": 410, "message": "too old"}
    bookmark = {"metadata": {"resourceVersion": "9", "creationTimestamp": None}}
    reader = parser_of(kind)
    assert reader.event(line(status, "ERROR")) == WatchEvent("ERROR", status)
    assert reader.event(line(bookmark, "BOOKMARK")).object["metadata"]["resourceVersion"] == "9"


NO_EVENTS = {
    "nothing": b"",
    "no JSON": b"<html>gateway timeout</html>",
    "half a line": line(cluster_bytes.node(1))[:2000],
    "no text": b"\xff\xfe",
    "a list": b"[]",
    "no type": json.dumps({"object": cluster_bytes.node(1)}).encode(),
    "no object": b'{"type": "ADDED"}',
    "an object without a name": line({"metadata": {"uid": "u", "resourceVersion": "1"}}),
    "an object without a uid": line({"metadata": {"name": "n", "resourceVersion": "1"}}),
    "an object without a version": line({"metadata": {"name": "n", "uid": "u"}}),
    "a name that is a number": line({"metadata": {"name": 7, "uid": "u", "resourceVersion": "1"}}),
    "metadata that are none": line({"metadata": "none"}),
    "nested too deeply": b'{"type": "ADDED", "object": {"spec": ' + b"[" * 100_000,
}


@pytest.mark.parametrize("text", NO_EVENTS.values(), ids=NO_EVENTS)
@pytest.mark.parametrize("kind", [NODES, PODS, SERVICES])
def test_a_line_that_is_no_event_is_a_transient_error(kind: Kind, text: bytes) -> None:
    with pytest.raises(TransientError, match=kind.plural):
        parser_of(kind).event(text)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{}", b'{"metadata": {}, "items": [7]}', b'{"items": ' + b"[" * 100_000]
)
def test_a_body_that_is_no_list_is_a_transient_error(text: bytes) -> None:
    with pytest.raises(TransientError, match="nodes"):
        parser_of(NODES).page(text)
