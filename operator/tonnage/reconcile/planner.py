"""Plan objects one after the other, each in the capacity that the others leave to it."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from tonnage.fit.calibration.corrections import KnownCorrections
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.observation.deadline import next_report_at
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.plan import Plan, make_plan
from tonnage.reconcile.scheduling.admission import Admission
from tonnage.reconcile.scheduling.blocked import next_blocked_at, without_blocked
from tonnage.reconcile.scheduling.context import Dependencies
from tonnage.reconcile.scheduling.migration_lock import MigrationLock


class Planner:
    """Makes plans of which no two give away the same GPU.

    `corrections` gives the memory corrections known by now.
    """

    def __init__(
        self,
        fleet: FleetState,
        migration_lock: MigrationLock,
        dependencies: Dependencies,
        corrections: Callable[[], KnownCorrections] | None = None,
    ) -> None:
        self._fleet = fleet
        self._migration_lock = migration_lock
        self._dependencies = dependencies
        self._corrections = corrections or (lambda: dependencies.corrections)

    def plan(self, observation: Observation, now: datetime) -> Plan:
        """Plan the object's next step and reserve the GPUs that it takes."""
        precedence = observation.precedence
        admission = Admission(
            claims=self._fleet.claims_before(precedence),
            may_migrate=self._migration_lock.may_begin(precedence, now),
        )
        dependencies = replace(self._dependencies, corrections=self._corrections())
        plan = make_plan(observation, self._fleet.view(), dependencies, now, admission)
        return self.adopt(observation, plan, now)

    def adopt(self, observation: Observation, plan: Plan, now: datetime) -> Plan:
        """Reserve what the plan takes before any other object is planned, but for replicas that
        cannot come.

        No await stands between the view and this, so planning is serial and no GPU is given away
        twice.
        """
        precedence = observation.precedence
        reservations = without_blocked(
            plan.reservations, observation, self._fleet.view(), now, plan.actions
        )
        self._fleet.reserve(observation.key, reservations)
        if plan.waits_for_capacity:
            self._fleet.wait_for_capacity(precedence, plan.claims)
        else:
            self._fleet.stop_waiting(observation.key)
        self._migration_lock.record(
            precedence, migrates=plan.is_migrating, candidate=plan.migration_candidate, now=now
        )
        unwatched = Requeue.at_first(
            now,
            next_blocked_at(observation, now),
            next_report_at(observation, now),
            observation.starts.again_at,
        )
        return replace(plan, requeue=plan.requeue.or_after(unwatched.seconds))

    def withdraw(self, key: Key, now: datetime) -> None:
        """Drop the claims of an object that cannot be observed."""
        self._fleet.stop_waiting(key)
        self._migration_lock.withdraw(key, now)

    def forget(self, key: Key, now: datetime) -> None:
        """Drop the state of an object that is gone."""
        self._fleet.release(key)
        self._migration_lock.forget(key, now)
