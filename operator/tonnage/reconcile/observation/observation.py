"""One InferenceDeployment and all that exists of it, as one reconcile sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.api.status import PlacementStatus
from tonnage.api.workload import Context
from tonnage.checkpoint.lookup import ModelAnswer, ModelUnavailable
from tonnage.demand.signals import LoadSample
from tonnage.fleet.nodes.affinity import NodeRequirement
from tonnage.kube.protocol import Object
from tonnage.placement.namespace import UNLIMITED, NamespaceLimits
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.children import Child, ChildDeployment
from tonnage.reconcile.observation.digests import digests_of_choice
from tonnage.reconcile.observation.optional.disruption_budgets import DisruptionBudgets
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.observation.pods.reports import NO_REPORTS, PodReports
from tonnage.reconcile.observation.previous import read_placements
from tonnage.reconcile.observation.priority import Precedence, UnknownPriorityClass
from tonnage.telemetry.cache import MeasuredCache


@dataclass(frozen=True)
class Observation:
    """One InferenceDeployment and all that exists of it.

    `spec` and `model` are the values that were read, or the reason why they are missing. `logs`
    maps each failed container's pod to the end of its log. `measured` maps each placement to the
    smallest KV cache that vLLM measured in its ready pods; a placement without a measurement is
    missing. `service` covers all placements, `placement_services` one placement each. `priority` is
    the priority of the object's pods. `inference_pool` is the InferencePool, or why it cannot be
    read, where there is or may be one. `queue` is the Kueue queue that the object's label names.
    `revisions` are the ReplicaSets of its Deployments, read only to search them for the template
    that served last. `load` is a sample of the load, None where the spec follows no load or none is
    measured. `declared` is the whole spec where long requests have an endpoint of their own; `spec`
    is then the part of the object itself. `long_endpoint` is the object of that endpoint's name, of
    any owner. `marked` is the context that the object's own label names, `shard` the shard that it
    belongs to. `requested_replicas` is `spec.replicas`, whatever else the spec says.
    `reports` is what is known about pods that do not come up, beyond `pods`. `budgets` are the
    PodDisruptionBudgets that may select its pods, None while they are unknown. `unconfirmed` is why
    the Hub does not confirm `model`, whose facts it gave earlier. `limits` is what its
    namespace allows its pods, `volumes` what its volumes require of nodes.
    `has_leader_worker_set`: the cluster has the kind that runs a replica on several nodes.
    """

    key: Key
    uid: str
    resource_version: str
    generation: int
    created: datetime
    spec: InferenceDeploymentSpec | InvalidSpecError
    model: ModelAnswer | None
    previous_status: dict[str, Any]
    deployments: tuple[ChildDeployment, ...] = ()
    service: Child | None = None
    placement_services: tuple[Child, ...] = ()
    inference_pool: Child | OptionalChildError | None = None
    budgets: DisruptionBudgets | None = None
    pods: tuple[ChildPod, ...] = ()
    revisions: tuple[Object, ...] = ()
    logs: dict[str, str] = field(default_factory=dict)
    measured: Mapping[str, MeasuredCache] = field(default_factory=dict)
    load: LoadSample | None = None
    priority: int | UnknownPriorityClass = 0
    queue: str | None = None
    declared: InferenceDeploymentSpec | None = None
    long_endpoint: Child | None = None
    marked: Context | None = None
    shard: Shard = UNNAMED_SHARD
    requested_replicas: int | None = None
    reports: PodReports = NO_REPORTS
    unconfirmed: ModelUnavailable | None = None
    limits: NamespaceLimits = UNLIMITED
    volumes: tuple[NodeRequirement, ...] = ()
    has_leader_worker_set: bool = False

    @property
    def context(self) -> Context | None:
        """Which requests the object's own replicas serve; None means all."""
        return self.marked if self.declared is None else Context.SHORT

    @cached_property
    def choice_digests(self) -> tuple[str, ...]:
        """What the placement is chosen for, by `digests_of_choice`; empty for an invalid spec."""
        return () if isinstance(self.spec, InvalidSpecError) else digests_of_choice(self.spec)

    @cached_property
    def reported_placements(self) -> tuple[PlacementStatus, ...]:
        """The placements of the previous status."""
        return tuple(read_placements(self.previous_status))

    @property
    def precedence(self) -> Precedence:
        """Its place among the objects that wait for GPUs."""
        priority = 0 if isinstance(self.priority, UnknownPriorityClass) else self.priority
        return Precedence(priority, self.created, self.key)
