"""Read the children of an InferenceDeployment: its Deployments, its Service, its pods."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Any, Final

from tonnage.api.names import (
    ANNOTATION_MOVED,
    ANNOTATION_PLACED_FOR,
    ANNOTATION_PLACEMENT,
    ANNOTATION_TEMPLATE,
    LABEL_PLACEMENT,
)
from tonnage.api.text import is_secret_name, read_json_object
from tonnage.engines.registry import engine_container, engine_named
from tonnage.fit.model import Parallelism
from tonnage.kube.protocol import Kind, Object
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments, EngineSetting
from tonnage.reconcile.observation.child_pods import ChildPod, find_ready_replicas
from tonnage.reconcile.observation.findings import parse_time
from tonnage.reconcile.observation.migration import Migration, read_migration
from tonnage.reconcile.observation.template_record import (
    TemplateRecord,
    read_admitted_at,
    read_record,
    read_recorded_at,
)
from tonnage.workloads.interface import ServingPods
from tonnage.workloads.metadata import (
    CORRECTION_BYTES,
    DATA_PARALLEL_SIZE,
    NODES_PER_REPLICA,
    SECONDARY,
)
from tonnage.workloads.registry import workload_kind_of

_MAX_DEVICE_BYTES: Final = 2**40
"""More than the memory of any device."""
_MAX_COUNT: Final = 2**31
"""More than any engine accepts for any count."""


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

    @property
    def is_ending(self) -> bool:
        """Whether it is deleted already, and waits for its finalizers."""
        return "deletionTimestamp" in self.body["metadata"]


@dataclass(frozen=True)
class ChildDeployment:
    """An owned Deployment: the placement it was rendered for, and its progress.

    `observed` means that the Deployment controller has observed the current template, `settled`
    that also all pods run it. The operator wrote `placement_digest` and `template` (digests), its
    engine `adjustments`, and `correction_bytes`, the memory correction known when it chose the
    pool. `refused` is why the API server rejects new pods of that template (a quota, an admission
    policy, a missing ServiceAccount), `last_migration` the migration from another pool, `completed`
    whether all replicas have once served from the current template, or there was none, `has_served`
    whether there were some. `updated` counts the pods of
    that template; `overdue` says that they have made no progress for longer than the progress
    deadline, None where its controller does not say that.
    `secondary`: a secondary placement, for replicas that the first one has no capacity for.
    `ready_pods` are the names of the pods that serve for the ready replicas, of any template.
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
    has_served: bool = False
    updated: int = 0
    adjustments: EngineAdjustments = UNADJUSTED
    correction_bytes: int = 0
    overdue: bool | None = False
    secondary: bool = False
    observed: bool = True
    ready_pods: frozenset[str] = frozenset()

    @property
    def kind(self) -> Kind:
        """Its kind."""
        return workload_kind_of(self.child.body).kind

    @cached_property
    def pod_template(self) -> Object:
        """The template of the pods that serve."""
        return workload_kind_of(self.child.body).template(self.child.body)

    @cached_property
    def engine(self) -> str:
        """The name of the engine of its pods."""
        container = engine_container(self.pod_template["spec"]) or {}
        return engine_named(container.get("name", "")).name

    @property
    def since(self) -> datetime:
        """When the operator placed the replicas there."""
        return max(self.created, self.last_migration.at) if self.last_migration else self.created

    @property
    def placement(self) -> str:
        """Name of the placement."""
        return str((self.child.body["metadata"].get("labels") or {}).get(LABEL_PLACEMENT, ""))

    def replicas_for(self, count: int) -> int:
        """The number of replicas to request for `count` ones, so that no more of the ready ones
        stop than necessary."""
        body = self.child.body
        return workload_kind_of(body).replicas_to_keep(body, self.ready_pods, count)

    def serves(self, replicas: int) -> bool:
        """Whether at least so many replicas are ready, and none is still to be replaced."""
        return self.settled and self.ready >= replicas

    @property
    def record(self) -> TemplateRecord | None:
        """Its template as rendered, and what it was rendered from; None where an older operator
        rendered it, or the record was edited."""
        return read_record(self.child.body["metadata"].get("annotations") or {})

    @cached_property
    def accelerator(self) -> str:
        """Id of its accelerator, which names the placement, except on further pools of it."""
        annotations = self.child.body["metadata"].get("annotations") or {}
        placement = _read_placement(annotations)
        return str(placement.get("accelerator") or self.placement)


def is_controlled_by(body: Mapping[str, Any], uid: str) -> bool:
    """Whether the object's controller is the InferenceDeployment with this uid."""
    owners = body.get("metadata", {}).get("ownerReferences") or []
    return any(owner.get("controller") and owner.get("uid") == uid for owner in owners)


def read_child(body: Object) -> Child:
    """Read the identity of a child, with the preconditions of its deletion."""
    metadata = body["metadata"]
    return Child(metadata["name"], metadata["uid"], metadata["resourceVersion"], body)


def read_children(bodies: Iterable[Object], uid: str) -> tuple[Child, ...]:
    """Read the children among `bodies` that the owner of this uid controls."""
    return tuple(read_child(body) for body in bodies if is_controlled_by(body, uid))


def read_deployments(
    bodies: Iterable[Object], uid: str, pods: Iterable[ChildPod]
) -> tuple[ChildDeployment, ...]:
    """Read the Deployments among `bodies` that the owner of this uid controls. `pods` are those of
    the owner."""
    known = list(pods)
    owned = (read_deployment(body, known) for body in bodies if is_controlled_by(body, uid))
    return tuple(sorted(owned, key=lambda live: live.child.name))


def secret_values(deployment: ChildDeployment) -> set[str]:
    """Values of variables whose names mark them as secrets; the container may log them."""
    containers = deployment.pod_template["spec"].get("containers") or []
    return {
        variable["value"]
        for container in containers
        for variable in container.get("env") or []
        if variable.get("value") and is_secret_name(variable["name"])
    }


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


def read_deployment(body: Object, pods: Collection[ChildPod] | None = None) -> ChildDeployment:
    """Read a Deployment that the operator rendered. `pods` are those of its owner, None where they
    are unknown."""
    metadata, spec, status = body["metadata"], body["spec"], body.get("status", {})
    annotations = metadata.get("annotations") or {}
    placement = _read_placement(annotations)
    wanted = spec.get("replicas", 1)
    nodes_per_replica = _read_count_or_one(placement.get(NODES_PER_REPLICA))
    name = (metadata.get("labels") or {}).get(LABEL_PLACEMENT, "")
    ready_pods = find_ready_replicas(pods or (), name, nodes_per_replica)
    state = workload_kind_of(body).read_state(
        body,
        None if pods is None else _count_serving(body, pods, name, ready_pods),
        is_observed=_is_observed(metadata, status.get("observedGeneration")),
    )
    return ChildDeployment(
        child=read_child(body),
        created=parse_time(metadata["creationTimestamp"]),
        pool=str(placement.get("pool", "")),
        parallelism=Parallelism(
            tensor=_read_count_or_one(placement.get("tensorParallelSize")),
            pipeline=_read_count_or_one(placement.get("pipelineParallelSize")),
            data=_read_count_or_one(placement.get(DATA_PARALLEL_SIZE)),
            nodes=nodes_per_replica,
        ),
        placement_digest=annotations.get(ANNOTATION_PLACED_FOR, ""),
        template=annotations.get(ANNOTATION_TEMPLATE, ""),
        wanted=wanted,
        existing=state.existing,
        ready=state.ready,
        settled=state.observed and state.existing == state.updated == wanted,
        refused=state.refused,
        last_migration=read_migration(annotations.get(ANNOTATION_MOVED, "")),
        completed=state.completed,
        has_served=state.has_served,
        updated=state.updated if state.observed else 0,
        adjustments=_read_adjustments(placement),
        correction_bytes=_read_correction(placement),
        overdue=state.overdue,
        secondary=placement.get(SECONDARY) is True,
        observed=state.observed,
        ready_pods=ready_pods,
    )


def _count_serving(
    body: Object, pods: Iterable[ChildPod], placement: str, ready: Collection[str]
) -> ServingPods:
    """Count the pods of a workload that serve, by the template that it has now. One whose replica
    lacks a pod on another node is not ready, whatever it says."""
    serving = [
        pod for pod in pods if pod.serves and not pod.deleting and pod.placement == placement
    ]
    template = workload_kind_of(body).template_name(body)
    current = {pod.replica for pod in serving if pod.template == template}
    oldest = min((pod.created for pod in serving), default=None)
    updated_ready = current.intersection(ready)
    return ServingPods(len(serving), len(current), len(ready), len(updated_ready), oldest)


def _read_placement(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Parse the placement annotation; an invalid one counts as absent."""
    return read_json_object(annotations.get(ANNOTATION_PLACEMENT, "")) or {}


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
