"""The loop of one object: observe, plan, execute, report."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Protocol

from tonnage.api.inference import HuggingFaceSource
from tonnage.api.status import InferenceDeploymentStatus, reported_status
from tonnage.checkpoint.lookup import ModelAnswer, ModelHub
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.kube.protocol import ApiError, ForbiddenError, KubeApi, Object
from tonnage.kube.rights import Right
from tonnage.reconcile.case import World
from tonnage.reconcile.execute import execute, execute_optional
from tonnage.reconcile.first_child import (
    REST_SECONDS,
    GrownApi,
    first_children,
    make_children,
)
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.learning import KeptInMind, Lessons
from tonnage.reconcile.listed import list_all
from tonnage.reconcile.looks import Circumstances, Look, Looks, RecallingApi, RecordingApi
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.newborns import Newborns
from tonnage.reconcile.observe import (
    Measure,
    MeasureLoad,
    Observation,
    observe,
    observe_itself,
)
from tonnage.reconcile.plan import (
    Plan,
    plan_refusal,
    plan_without_right,
    with_optional_child_error,
)
from tonnage.reconcile.planner import Planner, SharedFleet
from tonnage.reconcile.priority import Priorities
from tonnage.reconcile.report import EventSink, is_told, report
from tonnage.reconcile.status import make_unobserved_status


class FleetCache(SharedFleet, Protocol):
    """The fleet as the operator keeps it."""

    @property
    def changes(self) -> int:
        """How often it has changed, or who waits for it."""
        ...

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
        looks: Looks | None = None,
        newborns: Newborns | None = None,
    ) -> None:
        self._api = api
        self._looks = looks or Looks(now)
        self._newborns = newborns or Newborns()
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
        """Learn what is reserved, who waits and who moves, before the first reconcile of a leader,
        and what a first look at each object would see.

        Raises ApiError.
        """
        self._looks.begin_all()
        listed = await list_all(self._api)
        self._looks.end_all(listed.looks())
        statuses = self._planner.prime(
            listed.deployments(), listed.objects(), await self._priorities.read()
        )
        self._book.prime(statuses)
        self._newborns.prime(listed.keys())

    async def reconcile(self, key: Key) -> Requeue:
        """Bring one InferenceDeployment one step closer to its spec and report what was done."""
        grown = self._newborns.wake(key)
        if grown is None:
            if await self._make_first_child(key):
                return Requeue.after(REST_SECONDS)
            at_rest = await self._find_at_rest(key)
            if at_rest is not None:
                return at_rest
        api = RecordingApi(self._api if grown is None else GrownApi(self._api, key, grown), key)
        self._looks.begin(key)
        try:
            requeue = await self._reconcile_live(api, key)
        except BaseException:
            self._looks.end(key, None)
            raise
        self._looks.end(key, api.look())
        return requeue

    async def _make_first_child(self, key: Key) -> bool:
        """Make the first child of an object of which nothing is known but what an event told;
        whether that was done. Where it was not, a look will tell why."""
        told = self._newborns.take(key)
        if told is None:
            return False
        observation = await self._observe(RecallingApi(self._api, told), key)
        if observation is None:
            return False
        first = first_children(self._planner.plan(observation, self._now()).actions)
        self._looks.begin(key)
        self._newborns.rest(key, told.itself)
        made: list[Object] = []
        try:
            made = await make_children(self._api, first)
        finally:
            known = Look(told.itself, {**told.belongings, DEPLOYMENTS: made})
            self._looks.end(key, known if made else None)
            is_done = bool(first) and len(made) == len(first)
            if not is_done:
                self._newborns.wake(key)
        return is_done

    async def _find_at_rest(self, key: Key) -> Requeue | None:
        """When to look again at an object that the last look at it leaves nothing to do of, with
        the fleet and the time as they are now; None where it has to be looked at live."""
        look = self._looks.recall(key)
        if look is None or not reported_status(look.itself):  # then that is to be told at least
            return None
        api = RecallingApi(self._api, look)
        observation = await self._observe(api, key)
        if observation is None:
            return None
        planned_in = Circumstances(self._fleet.changes, self._lessons.known())
        plan = self._planner.plan(observation, self._now())
        if plan.all_actions or not is_told(observation, plan.status):
            return None
        await self._learn(plan)
        self._looks.rest(key, None if api.asked_beyond else planned_in)
        return plan.requeue

    async def _reconcile_live(self, api: KubeApi, key: Key) -> Requeue:
        try:
            observation = await self._observe(api, key)
        except ForbiddenError as error:
            await self._tell_unseen(key, error.right)
            raise
        if observation is None:  # deleted, as its owned children are; or served by another shard
            self._fleet.release(key)
            self._newborns.forget(key)
            self._book.forget(key)
            self._call(self._moves.forget(key, self._now()))
            return Requeue.never()
        plan = self._planner.plan(observation, self._now())
        remains = await self._carry_out(api, observation, plan)
        if remains is not None:
            plan = self._planner.adopt(observation, remains, self._now())
        else:
            plan = await self._carry_out_optional(api, observation, plan)
        await self._report(api, observation, plan.status)
        await self._learn(plan)
        return plan.requeue

    async def _carry_out(self, api: KubeApi, observation: Observation, plan: Plan) -> Plan | None:
        """Do it; what remains of the plan where the API server does not let it be done."""
        try:
            stopped = await execute(api, observation, plan.actions)
        except ForbiddenError as error:
            if error.right is None:
                raise
            return plan_without_right(plan, error.right)
        if stopped is None:
            return None
        remains = plan_refusal(observation, stopped.why, self._now())
        if stopped.done:
            # What was made before is not among what was observed, and holds GPUs all the same. The
            # next look, for which its own events call, sees it.
            return replace(remains, reservations=plan.reservations)
        await execute(api, observation, remains.actions)
        return remains

    async def _carry_out_optional(self, api: KubeApi, observation: Observation, plan: Plan) -> Plan:
        """Do what may fail without harm; the plan with what was in the way of it."""
        why = await execute_optional(api, plan.optional)
        return plan if why is None else with_optional_child_error(plan, why)

    async def _learn(self, plan: Plan) -> None:
        for lesson in plan.lessons:
            await self._lessons.learn(lesson)

    async def _tell_unseen(self, key: Key, right: Right | None) -> None:
        """Say in the status that nobody can know how the object is, where that much can be read."""
        itself = await observe_itself(self._api, key, self._fleet.view().shard)
        if itself is None or right is None:
            return
        status = make_unobserved_status(itself, right, self._now())
        if status is not None:
            await self._report(self._api, itself, status)

    async def _report(
        self, api: KubeApi, observation: Observation, status: InferenceDeploymentStatus
    ) -> None:
        await report(api, self._events, observation, status)
        self._book.learn(observation.key, status)

    async def _observe(self, api: KubeApi, key: Key) -> Observation | None:
        ask_hub = partial(self._ask_hub, key)
        try:
            return await observe(
                api,
                ask_hub,
                self._measure,
                key,
                self._priorities.find,
                self._measure_load,
                self._fleet.view().shard,
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
