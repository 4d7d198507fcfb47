"""The controllers that are measured beside each other: what each is given, and what it makes of it.

Each makes one child of each parent. As many pods come of it for each of them, so that all share the
cluster with the same work of others.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from e2e.admin import Admin
from e2e.models import inference
from e2e.rest import Json

_TEMPLATE: Json = {
    "metadata": {"labels": {"app": "scale"}},
    "spec": {"containers": [{"name": "main", "image": "example.org/pause:1"}]},
}
_MODEL = "llama-3.1-8b"  # fits on one GPU


@dataclass(frozen=True, slots=True)
class Contender:
    """One controller: the kinds of parent and child, and a parent of a name and with replicas.

    `process` is whose CPU time is its own.
    """

    name: str
    parent: str
    child: str
    process: str
    make: Callable[[str, int], Json]

    @property
    def namespace(self) -> str:
        """Where its objects are, so that no other contender's are counted."""
        return f"scale-{self.name.lower()}"

    def parents(self, admin: Admin) -> str:
        """Path of the parents."""
        return admin.resource(self.parent).path(self.namespace)

    def children(self, admin: Admin) -> str:
        """Path of the children."""
        return admin.resource(self.child).path(self.namespace)


def _deployment(name: str, replicas: int) -> Json:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": "scale", "set": name}},
            "template": {
                **_TEMPLATE,
                "metadata": {"labels": {"app": "scale", "set": name}},
            },
        },
    }


def _leader_worker_set(name: str, replicas: int) -> Json:
    """With what its webhook would fill in: it runs without one here, which spares it that time."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "startupPolicy": "LeaderCreated",
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0},
            },
            "networkConfig": {"subdomainPolicy": "Shared"},
            "leaderWorkerTemplate": {
                "size": 1,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": _TEMPLATE,
            },
        },
    }


def _inference(name: str, replicas: int) -> Json:
    return inference(name, _MODEL, max_model_len=8192, replicas=replicas)


DEPLOYMENT = Contender(
    "Deployment", "deployments", "replicasets", "kube-controller-manager", _deployment
)
LWS = Contender("LWS", "leaderworkersets", "statefulsets", "lws-controller", _leader_worker_set)
TONNAGE = Contender("Tonnage", "inferencedeployments", "deployments", "tonnage", _inference)
CONTENDERS = (DEPLOYMENT, LWS, TONNAGE)
