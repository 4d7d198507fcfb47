"""All that the plan of one object is made of, once its spec is accepted."""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Self

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.catalog.catalog import Catalog
from tonnage.fit.corrections import NOTHING_LEARNT, Corrections, LearntCorrections
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Pool
from tonnage.placement.memory import Memory
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.attempts import Attempts
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.turn import Admission, set_aside
from tonnage.render.model import Owner, RenderSettings


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What all plans share: the catalogue, the operator's settings for rendering, and what was
    found out for the plans before, which changes no plan. `scaling_interval_seconds`: how often the
    load is sampled where it is followed; `corrections` are what starts have taught by now, in all
    namespaces."""

    catalog: Catalog
    settings: RenderSettings
    memory: Memory = field(default_factory=Memory, compare=False)
    corrections: LearntCorrections = NOTHING_LEARNT
    scaling_interval_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class ReconcileContext:
    """One object as it is, and the fleet that it is planned in at this moment.

    `admission` is what other objects leave to it, `attempts` what became of plans before, as far as
    it counts in the circumstances of now.
    """

    observation: Observation
    accepted: Accepted
    fleet: Fleet
    dependencies: Dependencies
    now: datetime
    admission: Admission
    attempts: Attempts

    @property
    def spec(self) -> InferenceDeploymentSpec:
        """What is asked for."""
        return self.accepted.spec

    @property
    def catalog(self) -> Catalog:
        """Accelerators, releases and rules."""
        return self.dependencies.catalog

    @property
    def corrections(self) -> Corrections:
        """What starts have taught that counts for this object: the starts of other namespaces may
        have taught what is not true."""
        return self.dependencies.corrections.counting_in(self.observation.key.namespace)

    def shared_pools(self) -> tuple[Pool, ...]:
        """The pools that its pods tolerate, with the free capacity that every object sees."""
        return self.fleet.pools(tolerations=self.spec.template.spec.tolerations)

    def own_pools(self) -> tuple[Pool, ...]:
        """The same pools with the free capacity for this object: what it holds is free for it, and
        what objects before it claim is not."""
        own = self.fleet.pools(
            excluding=self.observation.owner, tolerations=self.spec.template.spec.tolerations
        )
        if not self.admission.claims:
            return own
        return set_aside(own, self.shared_pools(), self.admission.claims)

    def capacity_in(self, pool: str, gpus: int) -> int:
        """How many replicas of so many GPUs the pool of this name takes, those that run there
        included."""
        return next((one.room_for(gpus) for one in self.own_pools() if one.name == pool), 0)

    def with_leave_to_move(self) -> Self:
        """The same, were it this object's turn to leave its pool by choice."""
        return replace(self, admission=replace(self.admission, may_move=True))


def owner_of(observation: Observation) -> Owner:
    """The object as what its children belong to."""
    key = observation.key
    return Owner(
        key.namespace,
        key.name,
        observation.uid,
        observation.queue,
        observation.context,
        observation.shard,
    )
