"""Where the contract suite plays: an API server with an empty namespace, a user, small objects."""

from dataclasses import dataclass
from typing import Protocol

from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Kind, KubeApi, LeaseApi, Object


class User(Protocol):
    """Somebody else who writes: kubectl, Argo CD, a controller."""

    async def put(self, kind: Kind, body: Object) -> Object:
        """Create or replace."""
        ...

    async def remove(self, kind: Kind, namespace: str, name: str) -> None:
        """Delete without preconditions."""
        ...


@dataclass(frozen=True, slots=True)
class World:
    """An API server with an empty namespace."""

    api: KubeApi
    leases: LeaseApi
    user: User
    namespace: str


def config_map(world: World, name: str = "facts", **data: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": world.namespace, "labels": {"team": "chat"}},
        "data": data,
    }


def inference_deployment(world: World, name: str = "llama") -> Object:
    return {
        "apiVersion": INFERENCE_DEPLOYMENTS.api_version,
        "kind": INFERENCE_DEPLOYMENTS.kind,
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {
            "model": {"source": {"huggingFace": {"repo": "example/llama"}}},
            "workload": {"maxModelLen": 4096, "concurrency": 8},
        },
    }


def deployment(world: World, image: str = "vllm/vllm-openai:v0.32.0") -> Object:
    container: Object = {
        "name": "vllm",
        "image": image,
        "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
        "ports": [{"containerPort": 8000}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "llama", "namespace": world.namespace},
        "spec": {
            "replicas": 0,
            "selector": {"matchLabels": {"app": "llama"}},
            "template": {
                "metadata": {"labels": {"app": "llama"}},
                "spec": {"containers": [container]},
            },
        },
    }


def service(world: World) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "llama", "namespace": world.namespace},
        "spec": {
            "selector": {"app": "llama"},
            "ports": [{"name": "http", "port": 8000, "targetPort": 8000}],
        },
    }


def condition(kind: str, status: str = "True") -> Object:
    return {
        "type": kind,
        "status": status,
        "observedGeneration": 1,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
        "reason": "Tested",
        "message": "by the contract suite",
    }


def status_of(live: Object, *conditions: Object, uid: str | None = None) -> Object:
    metadata = {key: live["metadata"][key] for key in ("name", "namespace")}
    if uid is not None:
        metadata["uid"] = uid
    return {
        "apiVersion": live["apiVersion"],
        "kind": live["kind"],
        "metadata": metadata,
        "status": {"observedGeneration": 1, "conditions": list(conditions)},
    }


def version(live: Object) -> str:
    text: str = live["metadata"]["resourceVersion"]
    return text


def condition_types(live: Object) -> list[str]:
    return [each["type"] for each in live.get("status", {}).get("conditions", [])]
