"""The loop of one object: observe, plan, execute, report."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Protocol

from tonnage.api.inference import HuggingFaceSource
from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.checkpoint.lookup import ModelAnswer, ModelHub
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import ApiError, ForbiddenError, KubeApi
from tonnage.kube.rights import Right
from tonnage.reconcile.case import World
from tonnage.reconcile.execute import execute, execute_optional, find_name_conflict
from tonnage.reconcile.forbidden import tell_unseen
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.learning import KeptInMind, Lessons
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import (
    Measure,
    MeasureLoad,
    Observation,
    observe,
    observe_itself,
)
from tonnage.reconcile.plan import Plan, plan_hindered, plan_refusal, plan_without_right
from tonnage.reconcile.planner import Planner, SharedFleet
from tonnage.reconcile.priority import Priorities
from tonnage.reconcile.report import EventSink, report


class FleetCache(SharedFleet, Protocol):
    """The fleet as the operator keeps it."""

    def release(self, key: Key) -> None:
        """The object is gone: nothing is reserved for it, and it waits for nothing."""
        ...


class StatusBook(Protocol):
    """Where the statuses of all objects are added up."""

    def prime(self, statuses: Iterable[tuple[Key, InferenceDeploymentStatus]]) -> None:
        """All that there are when this process begins to lead."""
        ...

    def learn(self, key: Key, status: InferenceDeploymentStatus) -> None:
        """The object's status is so now."""
        ...

    def forget(self, key: Key) -> None:
        """The object is gone."""
        ...


class Reconciler:
    """Brings InferenceDeployments closer to their specs, one step a call."""

    def __init__(
        self,
        api: KubeApi,
        hub: ModelHub,
        fleet: FleetCache,
        moves: Moves,
        events: EventSink,
        book: StatusBook,
        world: World,
        measure: Measure,
        wake: Callable[[Key], None],
        now: Callable[[], datetime],
        measure_load: MeasureLoad | None = None,
        lessons: Lessons | None = None,
    ) -> None:
        self._api = api
        self._hub = hub
        self._fleet = fleet
        self._moves = moves
        self._priorities = Priorities(api, now)
        self._events = events
        self._book = book
        self._lessons = lessons or KeptInMind()
        self._planner = Planner(fleet, moves, world, wake, self._lessons.known)
        self._measure = measure
        self._measure_load = measure_load
        self._wake = wake
        self._now = now

    async def prime(self) -> None:
        """Learn what is reserved, who waits and who moves, before the first reconcile of a leader.

        Raises ApiError.
        """
        statuses = self._planner.prime(
            await self._api.list(DEPLOYMENTS, labels={LABEL_MANAGED_BY: MANAGED_BY}),
            await self._api.list(INFERENCE_DEPLOYMENTS),
            await self._priorities.read(),
        )
        self._book.prime(statuses)

    async def reconcile(self, key: Key) -> Requeue:
        """Bring one InferenceDeployment one step closer to its spec and report what was done."""
        try:
            observation = await self._observe(key)
        except ForbiddenError as error:
            await self._tell_unseen(key, error.right)
            raise
        if observation is None:  # deleted: its children are owned, the garbage collector has them
            self._fleet.release(key)
            self._book.forget(key)
            self._call(self._moves.forget(key, self._now()))
            return Requeue.never()
        plan = self._planner.plan(observation, self._now())
        remains = await self._carry_out(observation, plan)
        if remains is not None:
            plan = self._planner.adopt(observation, remains, self._now())
        else:
            plan = await self._carry_out_optional(observation, plan)
        await self._report(observation, plan.status)
        if plan.lesson is not None:
            await self._lessons.learn(plan.lesson)
        return plan.requeue

    async def _carry_out(self, observation: Observation, plan: Plan) -> Plan | None:
        """Do it; what remains of the plan where the API server does not let it be done."""
        try:
            refused = await find_name_conflict(self._api, observation, plan.actions)
            if refused is None:
                refused = await execute(self._api, plan.actions)
        except ForbiddenError as error:
            if error.right is None:
                raise
            return plan_without_right(observation, plan, error.right, self._now())
        return None if refused is None else plan_refusal(observation, refused, self._now())

    async def _carry_out_optional(self, observation: Observation, plan: Plan) -> Plan:
        """Do what may fail without harm; the plan with what was in the way of it."""
        why = await execute_optional(self._api, plan.optional)
        return plan if why is None else plan_hindered(observation, plan, why, self._now())

    async def _tell_unseen(self, key: Key, right: Right | None) -> None:
        """Say in the status that nobody can know how the object is, where that much can be read."""
        itself = await observe_itself(self._api, key)
        if itself is None or right is None:
            return
        status = tell_unseen(itself, right, self._now())
        if status is not None:
            await self._report(itself, status)

    async def _report(self, observation: Observation, status: InferenceDeploymentStatus) -> None:
        await report(self._api, self._events, observation, status)
        self._book.learn(observation.key, status)

    async def _observe(self, key: Key) -> Observation | None:
        ask_hub = partial(self._ask_hub, key)
        try:
            return await observe(
                self._api, ask_hub, self._measure, key, self._priorities.find, self._measure_load
            )
        except ApiError:
            # Whoever cannot be looked at keeps nobody waiting; it comes back by itself.
            self._fleet.stop_waiting(key)
            self._call(self._moves.withdraw(key, self._now()))
            raise

    def _call(self, key: Key | None) -> None:
        """Wake whose turn it is to move."""
        if key is not None:
            self._wake(key)

    def _ask_hub(self, key: Key, source: HuggingFaceSource, token: str | None) -> ModelAnswer:
        return self._hub.lookup(source, token, partial(self._wake, key))
