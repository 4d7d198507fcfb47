"""What exists of an InferenceDeployment: its Deployments, its Service, its pods."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address
from typing import Any, Final

from tonnage.api.names import (
    ANNOTATION_MOVED,
    ANNOTATION_PLACED_FOR,
    ANNOTATION_PLACEMENT,
    ANNOTATION_TEMPLATE,
    LABEL_PLACEMENT,
    VLLM_CONTAINER,
)
from tonnage.api.redact import names_a_secret
from tonnage.fit.model import Parallelism
from tonnage.fleet.pod import read_gpu_pod
from tonnage.kube.protocol import Object
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments, Knob
from tonnage.reconcile.move import Move, read_move
from tonnage.render.defaults import defaults
from tonnage.render.metadata import BESIDE, CORRECTION_BYTES

_ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod whose containers are never started again."""


_NO_DEVICE_BYTES: Final = 2**40
"""More than the memory of any device."""
_NO_COUNT: Final = 2**31
"""More than vLLM takes of anything that is counted."""

_COMPLETED: Final = "NewReplicaSetAvailable"

_OVERDUE: Final = "ProgressDeadlineExceeded"

TEMPLATE_LABEL: Final = "pod-template-hash"
"""The Deployment controller's own mark of a template, on its ReplicaSets and their pods."""


@dataclass(frozen=True, slots=True)
class Child:
    """An object that the InferenceDeployment controls, as read from the API server."""

    name: str
    uid: str
    resource_version: str
    body: Object


@dataclass(frozen=True, slots=True)
class ChildDeployment:
    """A Deployment of ours: the placement it was rendered for, and how far it has come.

    `settled` means that the Deployment controller has seen the current template and that all pods
    run it; `placed_for` and `template` are digests that the operator left on it, `adjustments` what
    it set of the engine, `correction_bytes` what it had learnt of the memory of such starts when it
    chose the place. `refused` is why the API server lets no pod be made (a quota, an
    admission, a ServiceAccount that is not there), `moved` how the replicas came from another pool,
    `completed` whether all of them have served from the current template, if not at this moment.
    `updated` are its pods of that template, and `overdue` is whether they have made no progress for
    longer than its deadline allows. `beside`: its replicas take what another placement of the same
    object has no room for.
    """

    child: Child
    created: datetime
    pool: str
    parallelism: Parallelism
    placed_for: str
    template: str
    wanted: int
    existing: int
    ready: int
    settled: bool
    refused: str | None = None
    moved: Move | None = None
    completed: bool = False
    updated: int = 0
    adjustments: EngineAdjustments = UNADJUSTED
    correction_bytes: int = 0
    overdue: bool = False
    beside: bool = False

    @property
    def since(self) -> datetime:
        """When the replicas were told to run there."""
        return max(self.created, self.moved.at) if self.moved else self.created

    @property
    def placement(self) -> str:
        """Name of the placement."""
        return str((self.child.body["metadata"].get("labels") or {}).get(LABEL_PLACEMENT, ""))

    def serves(self, replicas: int) -> bool:
        """Whether so many replicas answer at least, and none is still to be replaced."""
        return self.settled and self.ready >= replicas

    @property
    def accelerator(self) -> str:
        """Id of its accelerator: what the placement is named by, but for further pools of one."""
        annotations = self.child.body["metadata"].get("annotations") or {}
        told = _read_placement(annotations.get(ANNOTATION_PLACEMENT, ""))
        return str(told.get("accelerator") or self.placement)


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended: its exit code, the kubelet's reason and the termination message."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ChildPod:
    """A pod of one placement, with the state of its vLLM container.

    `gpus` are those that the pod asks for, of all kinds; `template` tells pods of one template from
    those of another. `address` is where its server listens, None while it has none. `waiting` is
    (reason, message) of a container that does not run; `end` how it ended last, `ended_before`
    whether it has been started again since (its log is then the previous one). `unschedulable` is
    why no node will do; `held_back` why it may not be bound to one yet: so does Kueue with it until
    there is quota.
    """

    name: str
    placement: str
    created: datetime
    node: str | None
    ready: bool
    deleting: bool
    restarts: int
    gpus: int = 0
    template: str = ""
    uid: str = ""
    address: str | None = None
    waiting: tuple[str, str] | None = None
    end: ContainerEnd | None = None
    ended_before: bool = False
    unschedulable: str | None = None
    held_back: str | None = None


def is_controlled_by(body: Mapping[str, Any], uid: str) -> bool:
    """Whether the object's controller is the InferenceDeployment with this uid."""
    owners = body.get("metadata", {}).get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def read_child(body: Object) -> Child:
    """The identity of a child, with the preconditions of its deletion."""
    metadata = body["metadata"]
    return Child(metadata["name"], metadata["uid"], metadata["resourceVersion"], body)


def read_deployments(bodies: Iterable[Object], uid: str) -> tuple[ChildDeployment, ...]:
    """Our Deployments among `bodies`; what another owner controls is none of ours."""
    ours = (body for body in bodies if is_controlled_by(body, uid))
    return tuple(sorted(map(read_deployment, ours), key=lambda found: found.child.name))


def secret_values(deployment: ChildDeployment) -> set[str]:
    """Values of the Deployment's variables that are named as a secret is; its log may say them."""
    template = deployment.child.body["spec"].get("template", {})
    containers = template.get("spec", {}).get("containers") or []
    return {
        variable["value"]
        for container in containers
        for variable in container.get("env") or []
        if variable.get("value") and names_a_secret(variable["name"])
    }


def read_pods(bodies: Iterable[Object]) -> tuple[ChildPod, ...]:
    """The pods among `bodies`, oldest first.

    Left out are those that have ended for good (evicted, refused by the kubelet): they hold nothing
    and serve nobody, another one is made in their place, and they may stand there for weeks.
    """
    alive = (body for body in bodies if body.get("status", {}).get("phase") not in _ENDED)
    return tuple(sorted(map(_read_pod, alive), key=lambda pod: (pod.created, pod.name)))


def parse_time(text: str) -> datetime:
    """A time as the API server writes it."""
    return datetime.fromisoformat(text)


def read_deployment(body: Object) -> ChildDeployment:
    """A Deployment that the operator rendered."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
    annotations = metadata.get("annotations") or {}
    placement = _read_placement(annotations.get(ANNOTATION_PLACEMENT, ""))
    wanted = spec.get("replicas", 1)
    existing, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    seen = status.get("observedGeneration") == metadata.get("generation")
    progress = _read_progress(status.get("conditions") or []) if seen else None
    return ChildDeployment(
        child=read_child(body),
        created=parse_time(metadata["creationTimestamp"]),
        pool=str(placement.get("pool", "")),
        parallelism=Parallelism(
            _degree(placement.get("tensorParallelSize")),
            _degree(placement.get("pipelineParallelSize")),
        ),
        placed_for=annotations.get(ANNOTATION_PLACED_FOR, ""),
        template=annotations.get(ANNOTATION_TEMPLATE, ""),
        wanted=wanted,
        existing=existing,
        ready=status.get("readyReplicas", 0),
        settled=seen and existing == updated == wanted,
        refused=_read_refusal(status.get("conditions") or []),
        moved=read_move(annotations.get(ANNOTATION_MOVED, "")),
        # The controller goes on saying so when a pod of the newest ReplicaSet fails later.
        completed=progress == _COMPLETED,
        updated=updated if seen else 0,
        adjustments=_read_adjustments(placement),
        correction_bytes=_read_correction(placement),
        overdue=progress == _OVERDUE,
        beside=placement.get(BESIDE) is True,
    )


def _read_progress(conditions: Iterable[Mapping[str, Any]]) -> str | None:
    """How far the Deployment controller says that the newest ReplicaSet has come, in its word."""
    return next(
        (found.get("reason") for found in conditions if found.get("type") == "Progressing"), None
    )


def _read_refusal(conditions: Iterable[Mapping[str, Any]]) -> str | None:
    return next(
        (
            found.get("message") or found.get("reason", "")
            for found in conditions
            if found.get("type") == "ReplicaFailure" and found.get("status") == "True"
        ),
        None,
    )


def _read_placement(text: str) -> dict[str, Any]:
    """The placement annotation; one that somebody edited into nonsense counts as absent."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _degree(value: object) -> int:
    return _count(value) or 1


def _read_adjustments(placement: Mapping[str, Any]) -> EngineAdjustments:
    """What the operator set of the engine; what somebody edited into nonsense counts as unset."""
    share = placement.get(Knob.GPU_MEMORY_UTILIZATION)
    return EngineAdjustments(
        gpu_memory_utilization=share if isinstance(share, float) and 0 < share < 1 else None,
        max_num_seqs=_count(placement.get(Knob.MAX_NUM_SEQS)),
        max_num_batched_tokens=_count(placement.get(Knob.MAX_NUM_BATCHED_TOKENS)),
    )


def _read_correction(placement: Mapping[str, Any]) -> int:
    value = placement.get(CORRECTION_BYTES)
    return value if type(value) is int and abs(value) < _NO_DEVICE_BYTES else 0


def _count(value: object) -> int | None:
    """Bounded: sums are made of it, and who may change a Deployment may write any number."""
    return value if type(value) is int and 0 < value < _NO_COUNT else None


def _read_pod(body: Object) -> ChildPod:
    metadata, status, requests = body["metadata"], body.get("status", {}), read_gpu_pod(body)
    labels = metadata.get("labels") or {}
    conditions = {found["type"]: found for found in status.get("conditions") or []}
    container: Mapping[str, Any] = next(
        (
            found
            for found in status.get("containerStatuses") or []
            if found.get("name") == VLLM_CONTAINER
        ),
        {},
    )
    state, last_state = container.get("state") or {}, container.get("lastState") or {}
    waiting = state.get("waiting")
    end = state.get("terminated") or last_state.get("terminated")
    scheduled = conditions.get("PodScheduled", {})
    return ChildPod(
        name=metadata["name"],
        placement=labels.get(LABEL_PLACEMENT, ""),
        created=parse_time(metadata["creationTimestamp"]),
        node=body["spec"].get("nodeName"),
        ready=conditions.get("Ready", {}).get("status") == "True",
        deleting="deletionTimestamp" in metadata,
        restarts=container.get("restartCount", 0),
        gpus=sum(requests.requests.values()) if requests else 0,
        template=labels.get(TEMPLATE_LABEL, ""),
        uid=metadata.get("uid", ""),
        address=_read_address(status.get("podIP")),
        waiting=(waiting.get("reason", ""), waiting.get("message", "")) if waiting else None,
        end=_read_end(end) if end else None,
        ended_before="terminated" not in state,
        unschedulable=scheduled.get("message", "")
        if scheduled.get("reason") == "Unschedulable"
        else None,
        held_back=scheduled.get("message", "")
        if scheduled.get("reason") == "SchedulingGated"
        else None,
    )


def _read_address(address: str | None) -> str | None:
    """Where the server listens. What no network plugin gives a pod (169.254.169.254 tells a cloud's
    credentials) is no address: who may write the status of pods could have the operator ask there.
    """
    try:
        found = ip_address(address or "")
    except ValueError:
        return None
    if isinstance(found, IPv6Address):
        if found.scope_id is not None:  # a zone is free text, and no pod has one
            return None
        found = found.ipv4_mapped or found
    if found.is_link_local or found.is_multicast or found.is_unspecified:
        return None
    host = f"[{found}]" if found.version == 6 else str(found)
    return f"{host}:{defaults().server.port}"


def _read_end(terminated: Mapping[str, Any]) -> ContainerEnd:
    return ContainerEnd(
        exit_code=terminated.get("exitCode", 0),
        reason=terminated.get("reason", ""),
        message=terminated.get("message", ""),
    )
