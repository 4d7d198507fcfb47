"""The controllers that one benchmark measures on the same control plane: what each one gets, and
what it makes of it.

Each makes one child of each parent. As many pods follow for each of them, so that the rest of the
cluster has the same work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.cluster.latency_probe import CHANGE_ANNOTATION, Stage
from e2e.harness.admin import Admin
from e2e.harness.operator_process import USER
from e2e.harness.rest import Json
from e2e.models import inference

ROUND_LABEL: Final = "scale.example.org/round"
"""On a parent: the round that created it, and after which it is deleted."""

_TEMPLATE: Json = {
    "metadata": {"labels": {"app": "scale"}},
    "spec": {"containers": [{"name": "main", "image": "example.org/pause:1"}]},
}
_MODEL: Final = "llama-3.1-8b"  # fits on one GPU


@dataclass(frozen=True, slots=True)
class MeasuredController:
    """One controller: the kinds of its parents and children, and how to make and change a parent.

    `process` is the one whose CPU time is the controller's, `user` the one that its requests have
    in the audit log (a part of the user's name or of the user agent). `make_spec` gets a name and
    a number of replicas; `wrap_template` puts a change of the pod template where a parent has it.
    """

    name: str
    parent: str
    child: str
    stages: tuple[Stage, ...]
    process: str
    user: str
    make_spec: Callable[[str, int], Json]
    wrap_template: Callable[[Json], Json]

    @property
    def namespace(self) -> str:
        """Where its objects are, so that no events of another controller's are counted."""
        return f"scale-{self.name.lower()}"

    def parents(self, admin: Admin) -> str:
        """Path of the parents."""
        return admin.resource(self.parent).path(self.namespace)

    def children(self, admin: Admin) -> str:
        """Path of the children."""
        return admin.resource(self.child).path(self.namespace)

    def services(self, admin: Admin) -> str:
        """Path of the Services."""
        return admin.resource("services").path(self.namespace)

    def make(self, name: str, replicas: int, round_name: str) -> Json:
        """A parent that a round creates."""
        body = self.make_spec(name, replicas)
        return {**body, "metadata": {"name": name, "labels": {ROUND_LABEL: round_name}}}

    def change(self, value: str) -> Json:
        """A merge patch that changes the pod template of a parent."""
        template = {"metadata": {"annotations": {CHANGE_ANNOTATION: value}}}
        return {"spec": self.wrap_template(template)}


def _deployment(name: str, replicas: int) -> Json:
    labels = {"app": "scale", "set": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {**_TEMPLATE, "metadata": {"labels": labels}},
        },
    }


def _leader_worker_set(name: str, replicas: int) -> Json:
    """With what its webhook would fill in: it runs without one here, which spares it that time."""
    return {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
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


DEPLOYMENT: Final = MeasuredController(
    name="Deployment",
    parent="deployments",
    child="replicasets",
    stages=(Stage.CHILD, Stage.STATUS),
    process="kube-controller-manager",
    user="deployment-controller",
    make_spec=_deployment,
    wrap_template=lambda template: {"template": template},
)
LWS: Final = MeasuredController(
    name="LWS",
    parent="leaderworkersets",
    child="statefulsets",
    stages=(Stage.CHILD, Stage.SERVICE, Stage.STATUS),
    process="lws-controller",
    user="lws/v",
    make_spec=_leader_worker_set,
    wrap_template=lambda template: {"leaderWorkerTemplate": {"workerTemplate": template}},
)
TONNAGE: Final = MeasuredController(
    name="Tonnage",
    parent="inferencedeployments",
    child="deployments",
    stages=(Stage.CHILD, Stage.SERVICE, Stage.STATUS),
    process="tonnage",
    user=USER,
    make_spec=_inference,
    wrap_template=lambda template: {"template": template},
)
CONTROLLERS: Final = (DEPLOYMENT, LWS, TONNAGE)
