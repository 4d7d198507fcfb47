"""One InferenceDeployment and all that exists of it, as one reconcile sees it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from tonnage.api.inference import DEFAULT_ENGINE, InferenceDeploymentSpec
from tonnage.api.parse import InvalidSpecError
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.api.status import PlacementStatus
from tonnage.api.workload import Context
from tonnage.checkpoint.lookup import ModelAnswer, ModelUnavailable
from tonnage.demand.signals import LoadSample
from tonnage.engines.metrics import MeasuredCache
from tonnage.fleet.nodes.affinity import NodeRequirement
from tonnage.kube.protocol import Object
from tonnage.placement.namespace import UNLIMITED, NamespaceLimits
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.children import Child, ChildDeployment
from tonnage.reconcile.observation.digests import (
    digests_of_choice,
    placement_digest,
    pod_spec_digest,
)
from tonnage.reconcile.observation.model_source import ReadAdapter
from tonnage.reconcile.observation.optional.disruption_budgets import DisruptionBudgets
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.observation.optional.weights import NO_WEIGHTS, ObservedWeights
from tonnage.reconcile.observation.pods.reports import NO_REPORTS, PodReports
from tonnage.reconcile.observation.pods.starts import NO_STARTS, Starts
from tonnage.reconcile.observation.previous import read_placements
from tonnage.reconcile.observation.priority import Precedence, UnknownPriorityClass
from tonnage.telemetry.served_adapters import ServedAdapters


@dataclass(frozen=True)
class Observation:
    """One InferenceDeployment and all that exists of it.

    `spec` and `model` are the values that were read, or the reason why they are missing. `logs`
    maps each failed container's pod to the end of its log. `measured` maps each placement to the
    smallest KV cache that the engine measured in its ready pods; a placement without one is
    missing. `service` covers all placements, `placement_services` one placement each. `priority` is
    the priority of the object's pods. `inference_pool` is the InferencePool, or why it cannot be
    read, where there is or may be one. `queue` is the Kueue queue that the object's label names.
    `revisions` are what Kubernetes keeps of earlier templates, read only to search for the template
    that served last. `load` is a sample of the load, None where the spec follows no load or none is
    measured. `declared` is the whole spec where long requests have an endpoint of their own; `spec`
    is then the part of the object itself. `long_endpoint` is the object of that endpoint's name, of
    any owner. `marked` is the context that the object's own label names, `shard` the shard that it
    belongs to. `requested_replicas` is `spec.replicas`, whatever else the spec says.
    `reports` is what is known about pods that do not come up, beyond `pods`. `budgets` are the
    PodDisruptionBudgets that may select its pods, None while they are unknown. `unconfirmed` is why
    the Hub does not confirm `model`, whose facts it gave earlier. `adapters` is what the Hub says
    of each adapter of the spec, () where none was asked about; `served_adapters` what the pods
    list, by pod. `limits` is what its namespace allows its pods, `volumes` what its volumes require
    of nodes.
    `has_leader_worker_set`: the cluster has the kind that runs a replica on several nodes,
    `has_compute_domains` the one that connects these over NVLink. `claim_templates` are its
    ResourceClaimTemplates, `compute_domains` its ComputeDomains. `starts` is what its pods do that
    have been starting for long. `weights` is what exists for spec.model.cache.
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
    adapters: tuple[ReadAdapter, ...] = ()
    served_adapters: Mapping[str, ServedAdapters] = field(default_factory=dict)
    limits: NamespaceLimits = UNLIMITED
    volumes: tuple[NodeRequirement, ...] = ()
    has_leader_worker_set: bool = False
    has_compute_domains: bool = False
    claim_templates: tuple[Child, ...] = ()
    compute_domains: tuple[Child, ...] = ()
    starts: Starts = NO_STARTS
    weights: ObservedWeights = NO_WEIGHTS

    @property
    def engine(self) -> str:
        """The engine of its replicas; where the operator chooses it and there are none, or the spec
        is invalid, the default one."""
        if isinstance(self.spec, InvalidSpecError):
            return DEFAULT_ENGINE
        is_known = bool(self.spec.engine.is_open and self.deployments)
        return self.deployments[0].engine if is_known else self.spec.engine.name

    @property
    def context(self) -> Context | None:
        """Which requests the object's own replicas serve; None means all."""
        return self.marked if self.declared is None else Context.SHORT

    @cached_property
    def placement_digests(self) -> Mapping[str, str]:
        """What the placement is chosen for, as the operator writes it, by the engine that may run
        it; empty for an invalid spec."""
        spec = self.spec
        if isinstance(spec, InvalidSpecError):
            return {}
        return {name: placement_digest(spec.with_engine(name)) for name in spec.engine.choices}

    def is_choice(self, digest: str) -> bool:
        """Whether a placement with this digest was chosen for the spec as it is. Other digests that
        count (`digests_of_choice`) are computed only where the written one differs."""
        spec = self.spec
        if isinstance(spec, InvalidSpecError):
            return False
        return digest in self.placement_digests.values() or any(
            digest in digests_of_choice(spec.with_engine(name)) for name in spec.engine.choices
        )

    def pod_spec_digest(self, engine: str) -> str:
        """Digest of what is rendered into pods with this engine, by the spec as the user wrote it:
        what the operator read of adapters restarts no pod."""
        digests, spec = self._pod_spec_digests, self.spec
        assert not isinstance(spec, InvalidSpecError), "nothing is rendered by an invalid spec"
        if engine not in digests:
            digests[engine] = pod_spec_digest(spec.with_engine(engine))
        return digests[engine]

    @cached_property
    def _pod_spec_digests(self) -> dict[str, str]:
        return {}

    @cached_property
    def reported_placements(self) -> tuple[PlacementStatus, ...]:
        """The placements of the previous status."""
        return tuple(read_placements(self.previous_status))

    @property
    def asks_hub_after_seconds(self) -> float | None:
        """Seconds until the Hub may confirm what it did not confirm or could not give; None where
        nothing is missing, or only a change of the source helps."""
        answers = [
            self.unconfirmed,
            *(one.unconfirmed or one.answer for one in self.adapters),
        ]
        waits = [one.retry_after_seconds for one in answers if isinstance(one, ModelUnavailable)]
        return min((seconds for seconds in waits if seconds is not None), default=None)

    @property
    def precedence(self) -> Precedence:
        """Its place among the objects that wait for GPUs."""
        priority = 0 if isinstance(self.priority, UnknownPriorityClass) else self.priority
        return Precedence(priority, self.created, self.key)
