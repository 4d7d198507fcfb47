"""A hundred changes of specs, drawn from the CRD's schema, on the real control plane.

Every answer of the API server and every end state is held against the API server in memory
(tests/support): what two thousand such changes show there holds here.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import pytest

from e2e.harness.rest import ApiError, Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.user import User
from tests.support.api_server.admission import RefusedByServerError, Schema, admit
from tests.support.in_memory.cluster import H100, L40S, MI300X, Cluster
from tests.support.in_memory.end_state import end_state, end_state_of
from tests.support.specs.first_spec import FACTS, give, new_cluster
from tests.support.specs.spec_walks import Spec, fixed_walks, schema_without
from tonnage.api.names import LABEL_OWNER
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, SERVICES

View = Callable[[Mapping[str, Any], str], Json]
"""What is compared of an end state, for one object of it."""

OBJECTS, STEPS = 20, 6
"""A hundred changes: the first specs come to an empty namespace."""
ROOMY: Final = [{**group, "gpusPerNode": 8, "count": 24} for group in (MI300X, H100, L40S)]
"""GPUs enough for all objects at once, wherever they go, also for those that need whole nodes."""

_NOT_HERE: Final = (
    # What the cluster would need for it is not there, and the API server in memory asks for none.
    ("gateway",),
    ("model", "source", "huggingFace"),
    ("model", "source", "persistentVolumeClaim"),
    ("template", "spec", "priorityClassName"),
    ("template", "spec", "runtimeClassName"),
    ("template", "spec", "serviceAccountName"),
    ("template", "spec", "volumes"),
    ("template", "spec", "volumeMounts"),
    # Nodes have the memory of real ones here, and no limit in memory.
    ("model", "source", "inline", "weightsBytes"),
    # No user approves plans here, and no load is measured.
    ("approval",),
    ("approvedPlan",),
    ("scaling", "targets"),
    ("scaling", "scaleToZero"),
    # Pods take their time here, and these may be of no time at all.
    ("placement", "fallback"),
    ("rollout", "progressDeadline"),
    # What is paused keeps what came before it: there is nothing that it comes to by itself.
    ("rollout", "paused"),
)
_JSON_PATCH: Final = "application/json-patch+json"
_OF_OTHERS: Final = frozenset({"candidates", "conditions", "lastReadyPlan"})
_FEW: Final = {("replicas",): 3, ("scaling", "minReplicas"): 3, ("scaling", "maxReplicas"): 3}
"""So that all objects can be placed."""


def test_a_hundred_changes_end_as_in_the_simulated_cluster(fleet: UseFleet, user: User) -> None:
    fleet({"groups": ROOMY})
    user.admin.apply({**FACTS, "metadata": {"name": "facts", "namespace": user.namespace}})
    walks = fixed_walks(OBJECTS, STEPS, _schema())
    objects = [Tried(user, f"walk-{number:02}") for number in range(len(walks))]
    for step in range(STEPS):
        for tried, walk in zip(objects, walks, strict=True):
            tried.give(walk[step])
        user.admin.until(
            f"all to come to what step {step} asks for",
            lambda: not any(_differences(user, objects)),
            timeout=300,
            describe=lambda: "\n".join(_differences(user, objects)),
        )
        for tried in objects:
            tried.check_restarts()


class Tried:
    """One object, what it was given last, and what that comes to in memory."""

    def __init__(self, user: User, name: str) -> None:
        self.name = name
        self._user = user
        self._view: View = _judgement
        self._wanted: Json = {}
        self._pods: set[str] = set()
        self._templates: list[Json] = []

    def give(self, spec: Spec) -> None:
        """Apply it. Both API servers refuse it, or both store it, and store the same."""
        self._pods, self._templates = self._user.pods(self.name), self._read_templates()
        try:
            stored = admit(spec)
        except RefusedByServerError:
            with pytest.raises(ApiError) as refused:
                self._replace(spec)
            assert refused.value.code in (400, 422), refused.value
            return
        assert self._replace(spec)["spec"] == stored
        alone = asyncio.run(_run_alone(self.name, stored))
        state = end_state(alone.api)
        self._view = _children_and_status if _has_children(state, self.name) else _judgement
        self._wanted = self._view(state, self.name)

    def _replace(self, spec: Spec) -> Json:
        """Store the spec as it stands, by a create or an update: to server-side apply an unknown
        field is an error, and a null a value."""
        admin = self._user.admin
        resource = admin.resource("infd")
        if admin.get("infd", self.name) is None:
            body = {
                "apiVersion": resource.group_version,
                "kind": resource.kind,
                "metadata": {"name": self.name},
                "spec": spec,
            }
            return admin.rest.request("POST", resource.path(admin.namespace), body)
        change = [{"op": "replace", "path": "/spec", "value": spec}]
        path = resource.path(admin.namespace, self.name)
        return admin.rest.request("PATCH", path, change, content_type=_JSON_PATCH)

    def differences(self, state: Json) -> Iterable[str]:
        """What is not as it is in memory, path by path."""
        actual = self._view(state, self.name)
        return (f"{self.name}{difference}" for difference in _lacking(self._wanted, actual))

    def check_restarts(self) -> None:
        """Pods of a template that has not changed run on."""
        pods = self._user.pods(self.name)
        if self._read_templates() == self._templates:
            kept = len(self._pods & pods)
            assert kept == min(len(self._pods), len(pods)), f"{self.name}: {self._pods} -> {pods}"

    def _read_templates(self) -> list[Json]:
        deployments = self._user.children("deployments", self.name)
        return [body["spec"]["template"] for body in deployments]


def _schema() -> Schema:
    schema = schema_without(_NOT_HERE)
    for path, most in _FEW.items():
        node = schema
        for name in path:
            node = node["properties"][name]
        node["maximum"] = most
    return schema


async def _run_alone(name: str, spec: Spec) -> Cluster:
    cluster = new_cluster(ROOMY)
    await give(cluster, name, spec)
    return cluster


def _differences(user: User, objects: Iterable[Tried]) -> list[str]:
    by_kind = {
        INFERENCE_DEPLOYMENTS: user.admin.items("infd"),
        DEPLOYMENTS: user.admin.items("deployments"),
        SERVICES: user.admin.items("services"),
    }
    unseen = [
        f"{body['metadata']['name']}: the status is not of this spec"
        for body in by_kind[INFERENCE_DEPLOYMENTS]
        if body.get("status", {}).get("observedGeneration") != body["metadata"]["generation"]
    ]
    state = end_state_of(by_kind)
    different = [difference for tried in objects for difference in tried.differences(state)]
    return unseen or different or list(_surplus(user))


def _surplus(user: User) -> Iterable[str]:
    """Workloads whose controllers have not deleted yet all pods that are too many. Such a pod is no
    replica that the next spec could keep."""
    for kind in ("deployments", "replicasets"):
        for body in user.admin.items(kind):
            metadata, status = body["metadata"], body.get("status", {})
            is_seen = status.get("observedGeneration") == metadata["generation"]
            # A Deployment that rolls out may have more pods than replicas.
            most = body["spec"]["replicas"] if kind == "replicasets" else math.inf
            if status.get("replicas", 0) > most or not is_seen:
                yield f"{kind} {metadata['name']}: scaling"


def _conditions(state: Mapping[str, Any], name: str) -> dict[str, tuple[str, str]]:
    """Status and reason by type."""
    conditions = state[f"InferenceDeployment/{name}"].get("status", {}).get("conditions", [])
    return {one["type"]: (one["status"], one["reason"]) for one in conditions}


def _has_children(state: Mapping[str, Any], name: str) -> bool:
    """Whether the spec alone creates children that come up. Without replicas and without a pool
    that takes it, it is Placed and has none, while children of an earlier spec stay without
    replicas; and replicas of an earlier spec serve as long as no node takes the new ones."""
    conditions = _conditions(state, name)
    comes_up = conditions["Placed"][0] == "True" and conditions["Ready"][1] != "Unschedulable"
    return comes_up and any(_is_child(key, body, name) for key, body in state.items())


def _is_child(key: str, body: Mapping[str, Any], name: str) -> bool:
    is_kind = key.startswith(("Deployment/", "Service/"))
    return is_kind and body["metadata"].get("labels", {}).get(LABEL_OWNER) == name


def _judgement(state: Mapping[str, Any], name: str) -> Json:
    """The conditions of a spec that does not change the children."""
    conditions = _conditions(state, name)
    return {kind: conditions.get(kind) for kind in ("Accepted", "Placed")}


def _children_and_status(state: Mapping[str, Any], name: str) -> Json:
    """Children and status, without what depends on the rest of the cluster or on earlier
    changes: the capacity of other pools, what served last, the strategy of the last change."""
    status = state[f"InferenceDeployment/{name}"].get("status", {})
    kept = {key: value for key, value in status.items() if key not in _OF_OTHERS}
    owned = {
        key: {"spec": body["spec"], "labels": body["metadata"]["labels"]}
        for key, body in state.items()
        if _is_child(key, body, name)
    }
    for body in owned.values():
        body["spec"] = {key: value for key, value in body["spec"].items() if key != "strategy"}
    return {
        "conditions": _conditions(state, name),
        "children": sorted(owned),
        **owned,
        "status": kept,
    }


def _lacking(wanted: Any, actual: Any, path: str = "") -> Iterable[str]:
    """Paths of what is wanted and not found so. What else is found may be: defaults of the API
    server, and variables that the settings of this operator give to all pods."""
    wanted, actual = _by_name(wanted), _by_name(actual)
    if isinstance(wanted, dict) and isinstance(actual, dict):
        for key, value in wanted.items():
            yield from _lacking(value, actual.get(key), f"{path}.{key}")
    elif wanted != actual:
        yield f"{path}: {wanted!r} in memory, {actual!r} here"


def _by_name(value: Any) -> Any:
    """A list as a map: by the names of its entries where they have any, else by number."""
    if not isinstance(value, list):
        return value
    named = all(isinstance(one, dict) and "name" in one for one in value)
    return {str(one["name"] if named else number): one for number, one in enumerate(value)} or value
