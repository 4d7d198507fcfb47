"""Which key an object wakes."""

from typing import Any

import pytest

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
from tonnage.reconcile.key import Key
from tonnage.watch.mappers import keys_for

OWNER = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "InferenceDeployment",
    "name": "llama",
    "uid": "u",
    "controller": True,
}
LLAMA = {Key("chat", "llama")}


def owned(**changes: Any) -> dict[str, Any]:
    return {"name": "child", "namespace": "chat", "ownerReferences": [OWNER | changes]}


CASES: dict[str, tuple[Kind, Any, set[Key]]] = {
    "itself": (INFERENCE_DEPLOYMENTS, {"name": "llama", "namespace": "chat"}, LLAMA),
    "owner of an endpoint": (INFERENCE_DEPLOYMENTS, owned(), LLAMA | {Key("chat", "child")}),
    "owner of a Deployment": (DEPLOYMENTS, owned(), LLAMA),
    "owner of a Service": (SERVICES, owned(), LLAMA),
    "owner of another version": (DEPLOYMENTS, owned(apiVersion="tonnage.dev/v1"), LLAMA),
    "owner that does not control": (DEPLOYMENTS, owned(controller=False), set()),
    "owner of another group": (DEPLOYMENTS, owned(apiVersion="other.dev/v1"), set()),
    "owner of another kind": (DEPLOYMENTS, owned(kind="AcceleratorPool"), set()),
    "no owner": (SERVICES, {"name": "child", "namespace": "chat"}, set()),
    "label of a pod": (
        PODS,
        {"namespace": "chat", "labels": {"tonnage.dev/inferencedeployment": "llama"}},
        LLAMA,
    ),
    "pod of somebody else": (PODS, {"namespace": "chat", "labels": {"app": "x"}}, set()),
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
def test_key_of(name: str) -> None:
    kind, metadata, want = CASES[name]
    assert keys_for(kind, {"metadata": metadata}) == want
