"""The inputs of the plan of one object whose spec is accepted."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.engines.inputs import Owner, RenderSettings
from tonnage.engines.replica import Replica
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, Corrections, KnownCorrections
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.fleet.nodes.pod import read_other_requests
from tonnage.fleet.resources import Resources
from tonnage.placement.cache import PlacementCache
from tonnage.placement.messages import format_fit
from tonnage.placement.model import Option, Rejection, ReplicaPods
from tonnage.placement.namespace import GpuQuota
from tonnage.placement.reasons import RejectedReason
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.attempts import Attempts
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.scheduling.admission import Admission, set_aside
from tonnage.workloads.pod.disk import may_download_to_cache
from tonnage.workloads.pod.limit_ranges import explain_limit_ranges
from tonnage.workloads.pod.pool_check import explain_pod_security, explain_templates
from tonnage.workloads.pod.template import render_resources


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What all plans share: the catalogue, the operator's settings for rendering, and
    `placement_cache`, a cache of earlier placements that changes no plan.
    `scaling_interval_seconds`: how often the operator samples the load of objects that scale by it;
    `corrections`: the memory corrections that starts gave so far, in all namespaces."""

    catalog: Catalog
    settings: RenderSettings
    placement_cache: PlacementCache = field(default_factory=PlacementCache, compare=False)
    corrections: KnownCorrections = NO_CORRECTIONS
    scaling_interval_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """One object as observed, and the fleet at this moment.

    `catalog` is the operator's, with the release that the replicas keep as the default.
    `admission` is what other objects leave to it, `attempts` the earlier plans that count in the
    present circumstances.
    """

    observation: Observation
    accepted: Accepted
    fleet: Fleet
    dependencies: Dependencies
    catalog: Catalog
    now: datetime
    admission: Admission
    attempts: Attempts

    @property
    def spec(self) -> InferenceDeploymentSpec:
        """The accepted spec."""
        return self.accepted.spec

    @property
    def corrections(self) -> Corrections:
        """The memory corrections that count for this object: those of other namespaces may be
        false."""
        return self.dependencies.corrections.counting_in(self.observation.key.namespace)

    def shared_pools(self) -> tuple[Pool, ...]:
        """The pools that its pods tolerate, with the free capacity for every object."""
        return self.fleet.pools(tolerations=self.spec.tolerations)

    def own_pools(self) -> tuple[Pool, ...]:
        """The same pools with the free capacity for this object: what it holds is free, and what
        objects of higher precedence claim is not."""
        own = self.fleet.pools(excluding=self.observation.key, tolerations=self.spec.tolerations)
        if self.admission.claims:
            own = set_aside(own, self.shared_pools(), self.admission.claims)
        return tuple(self._with_refusal(pool) for pool in own)

    def _with_refusal(self, pool: Pool) -> Pool:
        """The pool, marked where its podTemplate and that of the object do not go together."""
        refused = explain_templates(self.spec, pool, self.dependencies.settings)
        return pool if refused is None else replace(pool, refused=refused)

    def own_quotas(self) -> Mapping[str, GpuQuota]:
        """The quotas of the namespace by resource, with what its own pods use as not used."""
        quotas = self.observation.limits.quotas
        own = self.fleet.requested_by(self.observation.key) if quotas else {}
        return {quota.resource: quota.without(own.get(quota.resource, 0)) for quota in quotas}

    def capacity_in(self, pool: str, gpus: int) -> int:
        """How many replicas of `gpus` GPUs the named pool takes, including those that run there."""
        return next((own.replica_capacity(gpus) for own in self.own_pools() if own.name == pool), 0)

    def replica_pods(self) -> ReplicaPods:
        """The pods of this spec in its namespace."""
        return replica_pods(self.observation, self.accepted, self.dependencies)

    def with_migration_admitted(self) -> Self:
        """The same context, with the admission to leave the pool by choice."""
        return replace(self, admission=replace(self.admission, may_migrate=True))


def replica_pods(
    observation: Observation, accepted: Accepted, dependencies: Dependencies
) -> ReplicaPods:
    """The pods of an accepted spec in the namespace of its object."""
    spec, limits = accepted.spec, observation.limits.of_pods
    owner, catalog, settings = owner_of(observation), dependencies.catalog, dependencies.settings
    rendered: dict[tuple[str, int, int], tuple[Resources, str | None]] = {}
    secured: dict[str, str | None] = {}
    # All that render_resources and render_security read of a spec; the model is part of the load.
    pod_template = spec.pod_template.model_dump_json() if spec.pod_template else None
    key = spec.template.spec.model_dump_json(), pod_template, may_download_to_cache(spec), limits

    def render(option: Option) -> tuple[Resources, str | None]:
        replica = Replica(owner, spec, accepted.checkpoint, option, catalog, settings)
        size = option.pool.name, replica.gpus, replica.weights_bytes
        if size not in rendered:
            pod = render_resources(replica)
            refused = explain_limit_ranges(pod, limits.limit_range_items)
            rendered[size] = read_other_requests(pod), refused
        return rendered[size]

    def refuse(option: Option) -> Rejection | None:
        pool = option.pool
        if pool.name not in secured:
            secured[pool.name] = explain_pod_security(spec, pool, limits.pod_security)
        for reason, refused in (
            (RejectedReason.POD_SECURITY_VIOLATED, secured[pool.name]),
            (RejectedReason.LIMIT_RANGE_VIOLATED, render(option)[1]),
        ):
            if refused is not None:
                message = f"{format_fit(option)}, but {refused}"
                return Rejection(reason, message, option=option)
        return None

    return ReplicaPods(key, lambda option: render(option)[0], refuse)


def owner_of(observation: Observation) -> Owner:
    """The observed object as the owner of its children."""
    key = observation.key
    return Owner(
        key.namespace,
        key.name,
        observation.uid,
        observation.queue,
        observation.context,
        observation.shard,
    )
