"""Planning objects one after the other, each in what the others hold and leave to it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from tonnage.api.status import InferenceDeploymentStatus
from tonnage.fit.corrections import LearntCorrections
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.kube.protocol import Object
from tonnage.reconcile.context import Dependencies
from tonnage.reconcile.key import Key
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.plan import Plan, make_plan
from tonnage.reconcile.priority import PriorityClasses
from tonnage.reconcile.rebuild import Ledger, rebuild_state
from tonnage.reconcile.turn import Admission, Precedence


class SharedFleet(Ledger, Protocol):
    """The cluster's nodes and GPU pods, what is reserved on them, and who waits for them."""

    def view(self) -> Fleet:
        """All of it as it is known now."""
        ...

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """What this object's replicas hold or will hold, in place of what was said before."""
        ...

    def stop_waiting(self, key: Key) -> None:
        """The key has all the GPUs it wants."""
        ...

    def claims_before(self, precedence: Precedence) -> tuple[Reservation, ...]:
        """What those that wait and go before it would take."""
        ...

    def release(self, key: Key) -> None:
        """The object is gone: nothing is reserved for it, and it waits for nothing."""
        ...


class Planner:
    """Makes plans of which no two give away the same GPU; `wake` is told whose turn has come,
    `learnt` says what starts have taught by now."""

    def __init__(
        self,
        fleet: SharedFleet,
        moves: Moves,
        world: Dependencies,
        wake: Callable[[Key], None],
        learnt: Callable[[], LearntCorrections] | None = None,
    ) -> None:
        self._fleet = fleet
        self._moves = moves
        self._world = world
        self._wake = wake
        self._learnt = learnt or (lambda: world.corrections)

    def prime(
        self,
        deployments: Sequence[Object],
        objects: Iterable[Object],
        classes: PriorityClasses,
    ) -> list[tuple[Key, InferenceDeploymentStatus]]:
        """Learn what is reserved, who waits and who moves from what exists; gives the statuses."""
        return rebuild_state(self._fleet, self._moves, deployments, objects, classes)

    def plan(self, observation: Observation, now: datetime) -> Plan:
        """Plan the object's next step and reserve what it takes."""
        precedence = observation.precedence
        admission = Admission(
            claims=self._fleet.claims_before(precedence),
            may_move=self._moves.may_begin(precedence, now),
        )
        world = replace(self._world, corrections=self._learnt())
        plan = make_plan(observation, self._fleet.view(), world, now, admission)
        return self.adopt(observation, plan, now)

    def adopt(self, observation: Observation, plan: Plan, now: datetime) -> Plan:
        """Reserve what the plan takes before anything else is planned.

        No await stands between the view and this, so planning is serial and no GPU is given
        away twice.
        """
        precedence = observation.precedence
        self._fleet.reserve(observation.key, plan.reservations)
        if plan.waits_for_capacity:
            self._fleet.wait_for_capacity(precedence, plan.claims)
        else:
            self._fleet.stop_waiting(observation.key)
        called = self._moves.tell(
            precedence, moves=plan.moves, wish=plan.migration_candidate, now=now
        )
        if called is not None:
            self._wake(called)
        return plan

    def withdraw(self, key: Key, now: datetime) -> Key | None:
        """The object cannot be observed: it keeps no other waiting. Gives the object whose turn to
        move has come by that."""
        self._fleet.stop_waiting(key)
        return self._moves.withdraw(key, now)

    def forget(self, key: Key, now: datetime) -> Key | None:
        """The object is gone. Gives the object whose turn to move has come by that."""
        self._fleet.release(key)
        return self._moves.forget(key, now)
