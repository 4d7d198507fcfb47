"""The inputs of the plan of one object whose spec is accepted."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from typing import Self

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.engines.inputs import Owner, RenderSettings
from tonnage.fit.calibration.corrections import NO_CORRECTIONS, Corrections, KnownCorrections
from tonnage.fit.model import Footprint
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.placement.cache import PlacementCache
from tonnage.placement.model import Option, ReplicaPods
from tonnage.placement.namespace import Quota
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.observation.attempts import Attempts
from tonnage.reconcile.observation.digests import demand_digest
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.scheduling.admission import Admission, set_aside
from tonnage.reconcile.scheduling.replica_pods import limit_pools, replica_pods


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


@dataclass(frozen=True)
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
        """The accepted spec, with the rank of the adapters' buffers."""
        return self.accepted.spec

    def spec_on(self, engine: str) -> InferenceDeploymentSpec:
        """The accepted spec of replicas with this engine."""
        return self.spec.with_engine(engine)

    @cached_property
    def demand_digest(self) -> str:
        """Digest of what determines the number of replicas and their load."""
        return demand_digest(self.spec)

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
        return limit_pools(
            own,
            owner_of(self.observation),
            self.accepted,
            self.observation.volumes,
            self.fleet,
            self.dependencies.settings,
        )

    def own_quotas(self) -> tuple[Quota, ...]:
        """The quotas that count its pods, with what these use as not used."""
        limits, priority = self.observation.limits, self.spec.priority_class_name
        own = dict(limits.own_usage)
        return tuple(
            quota.without(own.get(quota.key, 0))
            for quota in limits.quotas
            if quota.counts(priority)
        )

    def quotas_admit_another(self, option: Option) -> bool:
        """Whether the quotas leave enough for a replica of the option next to all pods that exist,
        its own included."""
        priority = self.spec.priority_class_name
        quotas = [one for one in self.observation.limits.quotas if one.counts(priority)]
        usage = self.replica_pods().usage(option) if quotas else {}
        return all(usage.get(quota.key, 0) <= quota.left for quota in quotas)

    def capacity_in(self, pool: str, footprint: Footprint) -> int:
        """How many replicas of this footprint the named pool takes, including those that run
        there."""
        pools = self.own_pools()
        return next((own.replica_capacity(footprint) for own in pools if own.name == pool), 0)

    def replica_pods(self) -> ReplicaPods:
        """The pods of this spec in its namespace."""
        return replica_pods(
            owner_of(self.observation),
            self.accepted,
            self.observation.limits,
            self.dependencies.catalog,
            self.dependencies.settings,
        )

    def with_migration_admitted(self) -> Self:
        """The same context, with the admission to leave the pool by choice."""
        return replace(self, admission=replace(self.admission, may_migrate=True))


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
