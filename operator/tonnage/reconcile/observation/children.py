"""Read the children of an InferenceDeployment: its Deployments, its Service, its pods."""

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
from tonnage.api.text import is_secret_name
from tonnage.engines.defaults import load_defaults
from tonnage.fit.model import Parallelism
from tonnage.fleet.nodes.pod import read_gpu_pod
from tonnage.kube.protocol import Object
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments, EngineSetting
from tonnage.reconcile.observation.migration import Migration, read_migration
from tonnage.reconcile.observation.template_record import (
    TEMPLATE_LABEL,
    TemplateRecord,
    read_admitted_at,
    read_record,
    read_recorded_at,
)
from tonnage.workloads.metadata import CORRECTION_BYTES, NODES_PER_REPLICA, SECONDARY

_ENDED: Final = ("Succeeded", "Failed")
"""Phases of a pod whose containers never start again."""

_MAX_DEVICE_BYTES: Final = 2**40
"""More than the memory of any device."""
_MAX_COUNT: Final = 2**31
"""More than vLLM accepts for any count."""

_COMPLETED: Final = "NewReplicaSetAvailable"
_OVERDUE: Final = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Child:
    """An object that the InferenceDeployment controls, as read from the API server."""

    name: str
    uid: str
    resource_version: str
    body: Object

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return str(self.body["metadata"]["namespace"])


@dataclass(frozen=True, slots=True)
class ChildDeployment:
    """An owned Deployment: the placement it was rendered for, and its progress.

    `observed` means that the Deployment controller has observed the current template, `settled`
    that also all pods run it. The operator wrote `placement_digest` and `template` (digests), its
    engine `adjustments`, and `correction_bytes`, the memory correction known when it chose the
    pool. `refused` is why the API server rejects new pods of that template (a quota, an admission
    policy, a missing ServiceAccount), `last_migration` the migration from another pool, `completed`
    whether all replicas have once served from the current template. `updated` counts the pods of
    that template; `overdue` says that they have made no progress for longer than the progress
    deadline.
    `secondary`: a secondary placement, for replicas that the first one has no capacity for.
    """

    child: Child
    created: datetime
    pool: str
    parallelism: Parallelism
    placement_digest: str
    template: str
    wanted: int
    existing: int
    ready: int
    settled: bool
    refused: str | None = None
    last_migration: Migration | None = None
    completed: bool = False
    updated: int = 0
    adjustments: EngineAdjustments = UNADJUSTED
    correction_bytes: int = 0
    overdue: bool = False
    secondary: bool = False
    observed: bool = True

    @property
    def since(self) -> datetime:
        """When the operator placed the replicas there."""
        return max(self.created, self.last_migration.at) if self.last_migration else self.created

    @property
    def placement(self) -> str:
        """Name of the placement."""
        return str((self.child.body["metadata"].get("labels") or {}).get(LABEL_PLACEMENT, ""))

    def serves(self, replicas: int) -> bool:
        """Whether at least so many replicas are ready, and none is still to be replaced."""
        return self.settled and self.ready >= replicas

    @property
    def record(self) -> TemplateRecord | None:
        """Its template as rendered, and what it was rendered from; None where an older operator
        rendered it, or the record was edited."""
        return read_record(self.child.body["metadata"].get("annotations") or {})

    @property
    def accelerator(self) -> str:
        """Id of its accelerator, which names the placement, except on further pools of it."""
        annotations = self.child.body["metadata"].get("annotations") or {}
        placement = _read_placement(annotations.get(ANNOTATION_PLACEMENT, ""))
        return str(placement.get("accelerator") or self.placement)


@dataclass(frozen=True, slots=True)
class ContainerEnd:
    """How a container ended: its exit code, the kubelet's reason and the termination message."""

    exit_code: int
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ChildPod:
    """A pod of one placement, with the state of its vLLM container.

    `gpus` counts those that the pod requests, of all kinds; `template` is the hash of its template.
    `address` is where its server listens, None while it has none. `waiting` is (reason, message) of
    a container that does not run; `end` is how it last ended, `ended_before` whether it has started
    again since (its log is then the previous one). `unschedulable` is why no node fits; `held_back`
    is the message of a scheduling gate, as Kueue sets one until there is quota; either has been so
    since `waits_since`. `scheduled` is when it got its node. `lost`: its node was deleted, so that
    it serves nothing, whatever it says.
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
    waits_since: datetime | None = None
    scheduled: datetime | None = None
    lost: bool = False


def is_controlled_by(body: Mapping[str, Any], uid: str) -> bool:
    """Whether the object's controller is the InferenceDeployment with this uid."""
    owners = body.get("metadata", {}).get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def read_child(body: Object) -> Child:
    """Read the identity of a child, with the preconditions of its deletion."""
    metadata = body["metadata"]
    return Child(metadata["name"], metadata["uid"], metadata["resourceVersion"], body)


def read_deployments(bodies: Iterable[Object], uid: str) -> tuple[ChildDeployment, ...]:
    """Read the Deployments among `bodies` that the owner of this uid controls."""
    owned = (body for body in bodies if is_controlled_by(body, uid))
    return tuple(sorted(map(read_deployment, owned), key=lambda live: live.child.name))


def secret_values(deployment: ChildDeployment) -> set[str]:
    """Values of variables whose names mark them as secrets; the container may log them."""
    template = deployment.child.body["spec"].get("template", {})
    containers = template.get("spec", {}).get("containers") or []
    return {
        variable["value"]
        for container in containers
        for variable in container.get("env") or []
        if variable.get("value") and is_secret_name(variable["name"])
    }


def read_pods(bodies: Iterable[Object]) -> tuple[ChildPod, ...]:
    """Read the pods among `bodies`, oldest first.

    Pods that have ended for good (evicted, rejected by the kubelet) are left out: they hold no
    GPUs, another pod replaces them, and they may remain for weeks.
    """
    alive = (body for body in bodies if body.get("status", {}).get("phase") not in _ENDED)
    return tuple(sorted(map(_read_pod, alive), key=lambda pod: (pod.created, pod.name)))


def parse_time(text: str) -> datetime:
    """Parse a time as the API server writes it."""
    return datetime.fromisoformat(text)


def _is_observed(metadata: Mapping[str, Any], observed: int | None) -> bool:
    """Whether the Deployment controller has observed the present spec. It need not have observed
    annotations that the operator wrote alone, which make a new generation, too."""
    generation = metadata.get("generation")
    if generation == observed:
        return True
    annotations = metadata.get("annotations") or {}
    return any(
        at is not None and (observed, generation) == (at, at + 1)
        for at in (read_recorded_at(annotations), read_admitted_at(annotations))
    )


def read_deployment(body: Object) -> ChildDeployment:
    """Read a Deployment that the operator rendered."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
    annotations = metadata.get("annotations") or {}
    placement = _read_placement(annotations.get(ANNOTATION_PLACEMENT, ""))
    wanted = spec.get("replicas", 1)
    existing, updated = status.get("replicas", 0), status.get("updatedReplicas", 0)
    is_observed = _is_observed(metadata, status.get("observedGeneration"))
    progress = _read_progress(status.get("conditions") or []) if is_observed else None
    return ChildDeployment(
        child=read_child(body),
        created=parse_time(metadata["creationTimestamp"]),
        pool=str(placement.get("pool", "")),
        parallelism=Parallelism(
            tensor=_read_count_or_one(placement.get("tensorParallelSize")),
            pipeline=_read_count_or_one(placement.get("pipelineParallelSize")),
            nodes=_read_count_or_one(placement.get(NODES_PER_REPLICA)),
        ),
        placement_digest=annotations.get(ANNOTATION_PLACED_FOR, ""),
        template=annotations.get(ANNOTATION_TEMPLATE, ""),
        wanted=wanted,
        existing=existing,
        ready=status.get("readyReplicas", 0),
        settled=is_observed and existing == updated == wanted,
        refused=_read_refusal(status.get("conditions") or []) if is_observed else None,
        last_migration=read_migration(annotations.get(ANNOTATION_MOVED, "")),
        # The controller keeps this reason when a pod of the newest ReplicaSet fails later.
        completed=progress == _COMPLETED,
        updated=updated if is_observed else 0,
        adjustments=_read_adjustments(placement),
        correction_bytes=_read_correction(placement),
        overdue=progress == _OVERDUE,
        secondary=placement.get(SECONDARY) is True,
        observed=is_observed,
    )


def _read_progress(conditions: Iterable[Mapping[str, Any]]) -> str | None:
    """The reason of condition Progressing, which is about the newest ReplicaSet."""
    return next((one.get("reason") for one in conditions if one.get("type") == "Progressing"), None)


def _read_refusal(conditions: Iterable[Mapping[str, Any]]) -> str | None:
    return next(
        (
            condition.get("message") or condition.get("reason", "")
            for condition in conditions
            if condition.get("type") == "ReplicaFailure" and condition.get("status") == "True"
        ),
        None,
    )


def _read_placement(text: str) -> dict[str, Any]:
    """Parse the placement annotation; an invalid one counts as absent."""
    try:
        placement = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return placement if isinstance(placement, dict) else {}


def _read_count_or_one(value: object) -> int:
    return _read_count(value) or 1


def _read_adjustments(placement: Mapping[str, Any]) -> EngineAdjustments:
    """The engine settings that the operator adjusted; an invalid value counts as unset."""
    utilization = placement.get(EngineSetting.GPU_MEMORY_UTILIZATION)
    return EngineAdjustments(
        gpu_memory_utilization=(
            utilization if isinstance(utilization, float) and 0 < utilization < 1 else None
        ),
        max_num_seqs=_read_count(placement.get(EngineSetting.MAX_NUM_SEQS)),
        max_num_batched_tokens=_read_count(placement.get(EngineSetting.MAX_NUM_BATCHED_TOKENS)),
    )


def _read_correction(placement: Mapping[str, Any]) -> int:
    value = placement.get(CORRECTION_BYTES)
    return value if type(value) is int and abs(value) < _MAX_DEVICE_BYTES else 0


def _read_count(value: object) -> int | None:
    """Bounded, because sums use it and any editor of a Deployment can write any number."""
    return value if type(value) is int and 0 < value < _MAX_COUNT else None


def _read_pod(body: Object) -> ChildPod:
    metadata, status, requests = body["metadata"], body.get("status", {}), read_gpu_pod(body)
    labels = metadata.get("labels") or {}
    conditions = {condition["type"]: condition for condition in status.get("conditions") or []}
    container: Mapping[str, Any] = next(
        (
            candidate
            for candidate in status.get("containerStatuses") or []
            if candidate.get("name") == VLLM_CONTAINER
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
        waits_since=_read_wait(metadata, scheduled),
        scheduled=_read_scheduled(scheduled),
    )


def _read_scheduled(scheduled: Mapping[str, Any]) -> datetime | None:
    time = scheduled.get("lastTransitionTime")
    return datetime.fromisoformat(time) if time and scheduled.get("status") == "True" else None


def _read_wait(metadata: Mapping[str, Any], scheduled: Mapping[str, Any]) -> datetime | None:
    """Since when no node has the pod. The API server sets no time where it adds a gate."""
    if scheduled.get("status") != "False":
        return None
    since = scheduled.get("lastTransitionTime") or metadata["creationTimestamp"]
    return datetime.fromisoformat(since)


def _read_address(address: str | None) -> str | None:
    """Where the server listens. An address that no network plugin assigns is ignored: a writer of
    pod status could direct the operator to 169.254.169.254, which serves a cloud's credentials.
    """
    try:
        ip = ip_address(address or "")
    except ValueError:
        return None
    if isinstance(ip, IPv6Address):
        if ip.scope_id is not None:  # a zone is free text, and no pod has one
            return None
        ip = ip.ipv4_mapped or ip
    if ip.is_link_local or ip.is_multicast or ip.is_unspecified:
        return None
    host = f"[{ip}]" if ip.version == 6 else str(ip)
    return f"{host}:{load_defaults().server.port}"


def _read_end(terminated: Mapping[str, Any]) -> ContainerEnd:
    return ContainerEnd(
        exit_code=terminated.get("exitCode", 0),
        reason=terminated.get("reason", ""),
        message=terminated.get("message", ""),
    )


def find_scheduled_pods(pods: Iterable[ChildPod], placement: str) -> list[ChildPod]:
    """Pods of the placement that hold GPUs of a node and are not being deleted."""
    return [pod for pod in pods if pod.placement == placement and pod.node and not pod.deleting]
