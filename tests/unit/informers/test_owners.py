"""Which InferenceDeployments an object is or belongs to."""

from typing import Any

import pytest

from tonnage.informers.owners import owner_keys
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    CONFIG_MAPS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind

OWNER = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "InferenceDeployment",
    "name": "llama",
    "uid": "u",
    "controller": True,
}
LLAMA = {("chat", "llama")}


def owned(**changes: Any) -> dict[str, Any]:
    return {"name": "child", "namespace": "chat", "ownerReferences": [OWNER | changes]}


CASES: dict[str, tuple[Kind, Any, set[tuple[str, str]]]] = {
    "itself": (INFERENCE_DEPLOYMENTS, {"name": "llama", "namespace": "chat"}, LLAMA),
    "owner of an endpoint": (INFERENCE_DEPLOYMENTS, owned(), LLAMA | {("chat", "child")}),
    "owner of a Deployment": (DEPLOYMENTS, owned(), LLAMA),
    "owner of a Service": (SERVICES, owned(), LLAMA),
    "owner of another version": (DEPLOYMENTS, owned(apiVersion="tonnage.dev/v1"), LLAMA),
    "owner that does not control": (DEPLOYMENTS, owned(controller=False), set()),
    "owner of another group": (DEPLOYMENTS, owned(apiVersion="other.dev/v1"), set()),
    "owner of another kind": (DEPLOYMENTS, owned(kind="AcceleratorPool"), set()),
    "label of a Deployment that lost its owner": (
        DEPLOYMENTS,
        {"namespace": "chat", "labels": {"tonnage.dev/inferencedeployment": "llama"}},
        LLAMA,
    ),
    "label of a Service and another owner": (
        SERVICES,
        {**owned(name="gemma"), "labels": {"tonnage.dev/inferencedeployment": "llama"}},
        LLAMA | {("chat", "gemma")},
    ),
    "label in another namespace": (
        PODS,
        {"namespace": "search", "labels": {"tonnage.dev/inferencedeployment": "llama"}},
        {("search", "llama")},
    ),
    "empty label": (
        PODS,
        {"namespace": "chat", "labels": {"tonnage.dev/inferencedeployment": ""}},
        set(),
    ),
    "no namespace": (DEPLOYMENTS, {**owned(), "namespace": None}, set()),
    "no owner": (SERVICES, {"name": "child", "namespace": "chat"}, set()),
    "label of a pod": (
        PODS,
        {"namespace": "chat", "labels": {"tonnage.dev/inferencedeployment": "llama"}},
        LLAMA,
    ),
    "pod of another owner": (PODS, {"namespace": "chat", "labels": {"app": "x"}}, set()),
    "pod without labels": (PODS, {"namespace": "chat"}, set()),
    "node": (NODES, {"name": "gpu-1"}, set()),
    "pool": (ACCELERATOR_POOLS, {"name": "amd"}, set()),
    "kind that is not watched": (CONFIG_MAPS, owned(), set()),
    "owners that are no list": (DEPLOYMENTS, {"namespace": "chat", "ownerReferences": 3}, set()),
    "owner that is no mapping": (
        DEPLOYMENTS,
        {"namespace": "chat", "ownerReferences": ["x", None]},
        set(),
    ),
    "owner without a name": (DEPLOYMENTS, owned(name=None), set()),
    "name that is no text": (INFERENCE_DEPLOYMENTS, {"name": 3, "namespace": "chat"}, set()),
    "labels that are no mapping": (PODS, {"namespace": "chat", "labels": []}, set()),
    "metadata that is no mapping": (PODS, "x", set()),
}


@pytest.mark.parametrize("name", CASES)
def test_owners_of(name: str) -> None:
    kind, metadata, want = CASES[name]
    assert owner_keys(kind, {"metadata": metadata}) == want
