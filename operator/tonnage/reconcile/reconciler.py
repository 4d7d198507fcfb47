"""The loop of one object: observe, plan, execute, report."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from tonnage import delays
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.protocol import ApiError, ForbiddenError
from tonnage.kube.rights import Right
from tonnage.reconcile.execute import Writer, execute, execute_optional
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.learning import KeptInMind, Lessons
from tonnage.reconcile.observe import Observation, Sources, observe, observe_itself
from tonnage.reconcile.plan import (
    Plan,
    plan_refusal,
    plan_without_right,
    with_optional_child_error,
)
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.report import EventSink, report
from tonnage.reconcile.status import make_unobserved_status


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
    """Brings InferenceDeployments closer to their specs, one step a call.

    `wake` puts another key into the queue: that of an object whose turn to move has come.
    """

    def __init__(
        self,
        sources: Sources,
        writer: Writer,
        planner: Planner,
        events: EventSink,
        book: StatusBook,
        wake: Callable[[Key], None],
        now: Callable[[], datetime],
        lessons: Lessons | None = None,
    ) -> None:
        self._sources = sources
        self._writer = writer
        self._planner = planner
        self._events = events
        self._book = book
        self._wake = wake
        self._now = now
        self._lessons = lessons or KeptInMind()

    async def reconcile(self, key: Key) -> Requeue:
        """Bring one InferenceDeployment one step closer to its spec and report what was done."""
        observation = await self._observe(key)
        if observation is None:  # deleted, as its owned children are; or served by another shard
            self._forget(key)
            return Requeue.never()
        plan = self._planner.plan(observation, self._now())
        outcome = await self._execute(observation, plan)
        await self._report(observation, outcome.status)
        for lesson in outcome.lessons:
            await self._lessons.learn(lesson)
        return outcome.requeue

    async def _observe(self, key: Key) -> Observation | None:
        try:
            return await observe(self._sources, key)
        except ApiError as error:
            # An object that cannot be observed keeps no other waiting; it comes back by itself.
            self._wake_next(self._planner.withdraw(key, self._now()))
            if isinstance(error, ForbiddenError):
                await self._report_unknown(key, error.right)
            raise

    async def _execute(self, observation: Observation, plan: Plan) -> Plan:
        """Carry the plan out; the plan as far as the API server let it be carried out."""
        remains = await self._execute_children(observation, plan)
        if remains is not None:
            return self._planner.adopt(observation, remains, self._now())
        why = await execute_optional(self._writer, plan.optional)
        if why is not None:
            return with_optional_child_error(plan, why)
        # A write has effects that the plan did not see, and not all of them are watched.
        batch = delays.BATCH if plan.all_actions else None
        return replace(plan, requeue=plan.requeue.or_after(batch))

    async def _execute_children(self, observation: Observation, plan: Plan) -> Plan | None:
        """Carry out what the replicas need; what remains of the plan where that is refused."""
        try:
            stopped = await execute(self._writer, observation, plan.actions)
        except ForbiddenError as error:
            if error.right is None:
                raise
            return plan_without_right(plan, error.right)
        if stopped is None:
            return None
        remains = plan_refusal(observation, stopped.why, self._now())
        if stopped.done:
            # What was made before is not among what was observed, and holds GPUs all the same. The
            # next reconcile, for which its own events call, sees it.
            return replace(remains, reservations=plan.reservations)
        await execute(self._writer, observation, remains.actions)
        return remains

    async def _report(self, observation: Observation, status: InferenceDeploymentStatus) -> None:
        await report(self._writer, self._events, observation, status)
        self._book.learn(observation.key, status)

    async def _report_unknown(self, key: Key, right: Right | None) -> None:
        """Say in the status that the state of the object is unknown without this right."""
        itself = observe_itself(self._sources, key)
        status = None
        if itself is not None and right is not None:
            status = make_unobserved_status(itself, right, self._now())
        if itself is not None and status is not None:
            await self._report(itself, status)

    def _forget(self, key: Key) -> None:
        self._book.forget(key)
        self._wake_next(self._planner.forget(key, self._now()))

    def _wake_next(self, key: Key | None) -> None:
        """Wake the object whose turn to move has come."""
        if key is not None:
            self._wake(key)
