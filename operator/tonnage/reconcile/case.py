"""One object whose spec is accepted, and all that its plan is made of."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tonnage.api.inference import Approval, InferenceDeploymentSpec
from tonnage.api.names import ANNOTATION_TEMPLATE
from tonnage.api.status import FailedPlan
from tonnage.catalog.catalog import Catalog
from tonnage.fit.corrections import NOTHING_LEARNT, Corrections, LearntCorrections, MemoryCorrection
from tonnage.fleet.fleet import Fleet
from tonnage.kube.protocol import Object
from tonnage.placement.memory import Memory
from tonnage.reconcile.accept import Accepted
from tonnage.reconcile.approval import UNASKED, Standing, terms_in_force, terms_of_live
from tonnage.reconcile.attempts import Attempts, circumstances_of, failed_plan, find_fault
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.gate import Gate, settle_as_approved
from tonnage.reconcile.measurement import (
    Reading,
    TaughtBy,
    draw_lesson_of_failure,
    draw_lessons,
    take_reading,
)
from tonnage.reconcile.move import with_move
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Pending, PlacementOutcome, Scheduled, Unschedulable
from tonnage.reconcile.place import place, pools_for
from tonnage.reconcile.rollback import WayBack, find_way_back
from tonnage.reconcile.rollout import find_deployment, with_strategy
from tonnage.reconcile.scaling import room_in
from tonnage.reconcile.serving import newest, placed_for
from tonnage.reconcile.terms import Terms
from tonnage.reconcile.turn import Turn
from tonnage.render.deployment import render_deployment
from tonnage.render.model import Owner, RenderSettings, SurgeMode
from tonnage.telemetry.startup_log import read_shortfall


@dataclass(frozen=True, slots=True)
class World:
    """What all plans share: the catalogue, the operator's settings for rendering, and what was
    found out for the plans before, which changes no plan. `scaling_interval_seconds`: how often the
    load is looked at where it is followed; `corrections` are what starts have taught by now, in all
    namespaces."""

    catalog: Catalog
    settings: RenderSettings
    memory: Memory = field(default_factory=Memory, compare=False)
    corrections: LearntCorrections = NOTHING_LEARNT
    scaling_interval_seconds: float = 15.0


@dataclass(frozen=True, slots=True)
class Case:
    """`turn` is what others leave, `attempts` what became of plans before, as far as it counts."""

    observation: Observation
    accepted: Accepted
    fleet: Fleet
    world: World
    now: datetime
    turn: Turn
    attempts: Attempts

    @property
    def spec(self) -> InferenceDeploymentSpec:
        """What is asked for."""
        return self.accepted.spec

    def settle(self) -> tuple[PlacementOutcome, Standing]:
        """Where the replicas belong, within what a person approved where one is to be asked."""
        if self.spec.approval is not Approval.MANUAL:
            return self._place(self.turn), UNASKED
        in_force = terms_in_force(self.observation, self.spec, self.fleet)
        gate = Gate(self.observation, self.spec, in_force, self.render, self._read_live)
        return settle_as_approved(gate, self._place, self.turn)

    def render(self, placed: Scheduled) -> Object:
        """The Deployment of the placement."""
        spec = self.spec
        rendered = render_deployment(
            owner_of(self.observation),
            spec,
            self.accepted.checkpoint,
            placed.option,
            replicas=placed.granted,
            surge=SurgeMode.SURGE,
            placed_for=placed_for(spec),
            catalog=self.world.catalog,
            settings=self.world.settings,
        )
        deployment = with_move(rendered, placed.moved)
        return with_strategy(deployment, self.observation, spec, placed, self.fleet)

    def is_carried_out(self, placing: PlacementOutcome, running: ChildDeployment) -> bool:
        """Whether the Deployment has the template that the placement asks for."""
        if not isinstance(placing, Scheduled):
            return False
        rendered = self.render(placing)
        template = rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
        return template == running.template and (
            find_deployment(self.observation, rendered) is running
        )

    def judge(self, placed: Scheduled, terms: Terms, running: ChildDeployment | None) -> Attempts:
        """What is known of plans by now: the one by which `running` runs may have failed.

        Nothing else is done about that before it stands in the status, so that no crash makes the
        same plan be tried again.
        """
        if running is None or self.attempts.failure_of(terms.hash) is not None:
            return self.attempts
        last = self.attempts.last_ready
        if last is not None and last.template == running.template:
            return self.attempts
        fault = find_fault(self.observation, running, self.fleet)
        if fault is None:
            return self.attempts
        circumstances = circumstances_of(
            self.observation, self.spec, self.fleet, self.world.catalog
        )
        found = failed_plan(terms, placed.option, fault, circumstances, self.now)
        return self.attempts.with_failed(found)

    def read_measurement(
        self, placed: Scheduled, running: ChildDeployment | None, image: str
    ) -> Reading | None:
        """What vLLM measured of the placement where just that runs."""
        return take_reading(
            self.observation, self.accepted, placed.option, running, image, self.world.catalog
        )

    @property
    def may_teach(self) -> bool:
        """An image of the user's own teaches nothing: it may be another vLLM."""
        return self.spec.engine.vllm.image is None

    def learn_from(self, readings: Iterable[Reading]) -> tuple[MemoryCorrection, ...]:
        """What the placements teach of memory by what vLLM measured, where that is news."""
        known, catalog = self._corrections, self.world.catalog
        return tuple(draw_lessons(readings, known, self._taught_by, catalog))

    def learn_from_failure(self, placed: Scheduled, attempts: Attempts) -> MemoryCorrection | None:
        """What the placement teaches by a failure that was just found."""
        if attempts.failed == self.attempts.failed:
            return None
        shortfall = read_shortfall(attempts.failed[-1].message)
        return draw_lesson_of_failure(
            placed.option, shortfall, self.accepted, self._taught_by, self.world.catalog
        )

    @property
    def _corrections(self) -> Corrections:
        """What counts for this object: others may have taught what is not true."""
        return self.world.corrections.counting_in(self.observation.key.namespace)

    @property
    def _taught_by(self) -> TaughtBy:
        return TaughtBy("/".join(self.observation.owner), self.now.date())

    def way_back_from(self, placed: Scheduled, terms: Terms, deployment: Object) -> WayBack | None:
        """How the plan that served last runs again, where just these terms have failed, or where
        to try them after others that failed would take away replicas that serve."""
        failed = self.attempts.failure_of(terms.hash)
        if failed is None and self.attempts.failed and self._takes_away(placed, deployment):
            failed = self.attempts.failed[-1]
        return self._way_back(failed)

    def way_back_from_nothing(self) -> WayBack | None:
        """The same where nothing new is carried out, and what runs has failed or is the plan that
        served last."""
        failed, last = self.attempts.failed, self.attempts.last_ready
        running = newest(self.observation.deployments)
        if not failed or running is None:
            return None
        if last is not None and running.template == last.template:
            return self._way_back(failed[-1])
        in_force = terms_in_force(self.observation, self.spec, self.fleet)
        return self._way_back(self.attempts.failure_of(in_force.hash) if in_force else None)

    def _takes_away(self, placed: Scheduled, deployment: Object) -> bool:
        target = find_deployment(self.observation, deployment)
        template = deployment["metadata"]["annotations"][ANNOTATION_TEMPLATE]
        if target is not None and target.template == template:
            return False  # it is on its way
        if placed.granted < placed.option.replicas:
            return any(found.ready > 0 for found in self.observation.deployments)
        all_at_once = deployment["spec"]["strategy"]["type"] == "Recreate"
        return all_at_once and target is not None and target.ready > 0

    def _way_back(self, failed: FailedPlan | None) -> WayBack | None:
        if failed is None or self.spec.replicas == 0:
            return None
        return find_way_back(self.observation, self.accepted, failed, self._room)

    def _read_live(self, found: ChildDeployment) -> Terms:
        return terms_of_live(found, self.observation, self.spec, self.fleet)

    def _room(self, pool: str, gpus: int) -> int:
        pools = pools_for(self.observation, self.accepted, self.fleet, self.turn)
        return room_in(pools, pool, gpus)

    def _place(self, turn: Turn, *, bound: bool = False) -> Scheduled | Pending | Unschedulable:
        return place(
            self.observation,
            self.accepted,
            self.fleet,
            self.world.catalog,
            self.world.memory,
            self.now,
            turn,
            bound=bound,
            attempts=self.attempts,
            corrections=self._corrections,
        )


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
