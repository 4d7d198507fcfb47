"""Put the objects of a recording into another control plane, as if they had always been there.

Each field manager applies its own fields. The API server gives new uids; owner references and the
digests that the recorded operator made of them follow. Kubernetes' own controllers make what is
theirs: ReplicaSets, pods, the addresses of Services.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from hashlib import sha256

from e2e.harness.admin import Admin
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.nodes.fleet import apply_nodes
from e2e.recordings.recording import USER_MANAGER, Recording, managers, part_of

CHILD_MANAGER = "tonnage"
STATUS_MANAGER = "tonnage-status"
_APPLIERS = (CHILD_MANAGER, "tonnage-corrections", USER_MANAGER)

_RENDERED = "tonnage.dev/rendered"
_REVISION = "deployment.kubernetes.io/revision"
_TEMPLATE_HASH = "pod-template-hash"
_APPLY = "application/apply-patch+yaml"
_TIMEOUT_SECONDS = 120.0
# What the objects name comes before them. InferenceDeployments and their children follow.
_USER_KINDS = (
    "PriorityClass",
    "PersistentVolume",
    "ServiceAccount",
    "ConfigMap",
    "PersistentVolumeClaim",
)
_CHILD_KINDS = ("Service", "InferencePool")
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas")


def rendered_digest(part: Json) -> str:
    """The recorded operator's digest of a child: of all that it applies but the digest itself."""
    metadata = dict(part["metadata"])
    annotations = {k: v for k, v in metadata.pop("annotations", {}).items() if k != _RENDERED}
    body = {**part, "metadata": metadata | ({"annotations": annotations} if annotations else {})}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16]


class Restorer:
    """Restores one recording; the CRDs have to be there."""

    def __init__(self, stack: Stack, admin: Admin, recording: Recording) -> None:
        self._stack = stack
        self._admin = admin
        self._recording = recording
        self._uids: dict[str, str] = {}  # recorded -> restored

    def restore(self) -> None:
        """Restore all objects; return when each Deployment has as many ready pods as recorded."""
        self._restore_prerequisites()
        owners = self._recording.of_kind("InferenceDeployment")
        # An object that is another's endpoint for long requests comes after its owner.
        for body in sorted(owners, key=lambda body: "ownerReferences" in body["metadata"]):
            self._restore_generations(body)
            self._restore_object(body)
        for kind in _CHILD_KINDS:
            for body in self._recording.of_kind(kind):
                self._restore_object(body)
        for body in self._recording.of_kind("Deployment"):
            self._restore_revisions(body)
        for body in self._recording.of_kind("Deployment"):
            self._await_pods(body)
        for body in owners:
            self._restore_status(body)

    def _restore_prerequisites(self) -> None:
        apply_nodes(self._stack.access, [_as_joined(node) for node in self._nodes()])
        namespaces = {
            body["metadata"]["namespace"] for body in self._recording.of_kind("InferenceDeployment")
        }
        for name in namespaces:
            self._admin.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        for kind in _USER_KINDS:
            for body in self._recording.of_kind(kind):
                self._restore_object(body)
        for body in self._recording.of_kind("AcceleratorPool"):
            self._restore_object(body)
            self._restore_status(body)

    def _nodes(self) -> list[Json]:
        return self._recording.of_kind("Node")

    def _restore_object(self, body: Json) -> None:
        """Restore what the user or the operator applied; each object is of one of them."""
        manager = _applier(body)
        stored = self._apply(self._with_new_owner(part_of(body, manager)), manager)
        self._uids[body["metadata"]["uid"]] = stored["metadata"]["uid"]

    def _restore_generations(self, body: Json) -> None:
        """Change the spec until only the recorded spec is left to be applied: its status names
        generations."""
        manager = _applier(body)
        for generation in range(1, body["metadata"]["generation"]):
            part = self._with_new_owner(part_of(body, manager))
            part["spec"]["rollout"] = {"progressDeadline": f"{generation}h"}
            self._apply(part, manager)

    def _restore_status(self, body: Json) -> None:
        """Restore the whole status: it has no other manager, and none owns an empty list in it."""
        part = part_of(body, STATUS_MANAGER, "status") | {"status": body["status"]}
        self._apply(part, STATUS_MANAGER, "status")

    def _restore_revisions(self, body: Json) -> None:
        """Let the Deployment go through all its revisions, then be as it is recorded.

        So the Deployment controller makes every ReplicaSet that it is recorded with. Those that
        have no pods any more get none in between.
        """
        final = self._with_new_owner(part_of(body, CHILD_MANAGER))
        uid = body["metadata"]["uid"]
        for revision in sorted(self._revisions(uid), key=_revision_number):
            step: Json = json.loads(json.dumps(final))
            step["spec"].pop("paused", None)
            step["spec"]["template"] = _template(revision)
            if not revision["spec"]["replicas"]:
                step["spec"]["replicas"] = 0
            for key, value in revision["metadata"]["annotations"].items():
                if key in final["metadata"]["annotations"]:
                    step["metadata"]["annotations"][key] = value
            self._apply(step, CHILD_MANAGER)
            self._admin.wait_for(
                "replicasets",
                revision["metadata"]["name"],
                partial(_has_replicas, count=revision["spec"]["replicas"]),
                _namespace(body),
                timeout=_TIMEOUT_SECONDS,
            )
        self._apply(final, CHILD_MANAGER)

    def _revisions(self, uid: str) -> list[Json]:
        return [
            body
            for body in self._recording.of_kind("ReplicaSet")
            if any(owner["uid"] == uid for owner in body["metadata"]["ownerReferences"])
        ]

    def _await_pods(self, body: Json) -> None:
        recorded = {count: body["status"].get(count) for count in _COUNTS}
        name = body["metadata"]["name"]
        self._admin.wait_for(
            "deployments",
            name,
            lambda deployment: (
                deployment["status"].get("observedGeneration")
                == deployment["metadata"]["generation"]
                and {count: deployment["status"].get(count) for count in _COUNTS} == recorded
            ),
            _namespace(body),
            timeout=_TIMEOUT_SECONDS,
            why=f"Deployment {name} to have the recorded pods, {recorded}",
        )

    def _with_new_owner(self, part: Json) -> Json:
        """The part with the owner's uid in this cluster, and the digest that follows from it."""
        owners: Iterable[Json] = part["metadata"].get("ownerReferences") or []
        for owner in owners:
            owner["uid"] = self._uids[owner["uid"]]
        annotations = part["metadata"].get("annotations") or {}
        if _RENDERED in annotations:
            annotations[_RENDERED] = rendered_digest(part)
        return part

    def _apply(self, part: Json, manager: str, subresource: str = "") -> Json:
        resource = self._admin.resource(part["kind"], part["apiVersion"])
        path = resource.path(_namespace(part), part["metadata"]["name"], subresource)
        query = {"fieldManager": manager, "force": "true"}
        return self._admin.rest.request("PATCH", path, part, query=query, content_type=_APPLY)


def _namespace(body: Json) -> str:
    return str(body["metadata"].get("namespace", ""))


def _applier(body: Json) -> str:
    """The manager that applied the object; one that applied only a name owns no field."""
    names = {name for name, subresource, _ in managers(body) if not subresource}
    return next((name for name in _APPLIERS if name in names), USER_MANAGER)


def _as_joined(node: Json) -> Json:
    """The Node as its kubelet registered it, without what controllers have added since."""
    metadata, spec, status = node["metadata"], node["spec"], node["status"]
    taints = [
        taint
        for taint in spec.get("taints") or []
        if not taint["key"].startswith("node.kubernetes.io/")
    ]
    return {
        "apiVersion": node["apiVersion"],
        "kind": node["kind"],
        "metadata": {key: metadata.get(key) or {} for key in ("labels", "annotations")}
        | {"name": metadata["name"]},
        "spec": {"unschedulable": spec.get("unschedulable", False), "taints": taints},
        "status": {key: status[key] for key in ("capacity", "allocatable", "nodeInfo")},
    }


def _template(revision: Json) -> Json:
    """The Deployment's template of a ReplicaSet."""
    template: Json = json.loads(json.dumps(revision["spec"]["template"]))
    template["metadata"]["labels"].pop(_TEMPLATE_HASH)
    return template


def _revision_number(revision: Json) -> int:
    return int(revision["metadata"]["annotations"][_REVISION])


def _has_replicas(revision: Json, count: int) -> bool:
    return bool(revision["spec"]["replicas"] == count)
