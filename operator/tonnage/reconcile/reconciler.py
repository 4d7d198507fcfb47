"""The loop of one object: observe, plan, execute, report."""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from tonnage import delays
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.fit.calibration.corrections import MemoryCorrection
from tonnage.kube.events import RecordEvent
from tonnage.kube.protocol import ApiError, ForbiddenError
from tonnage.kube.rights import Right
from tonnage.reconcile.actions import creates
from tonnage.reconcile.execute import Writer, execute, execute_each, execute_optional
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observe import Sources, observe, observe_object
from tonnage.reconcile.plan import (
    Plan,
    plan_refusal,
    plan_without_right,
    with_optional_child_error,
)
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.report import report
from tonnage.reconcile.status.status import make_unobserved_status
from tonnage.telemetry.served_adapters import PodCalls

_log = logging.getLogger(__name__)


class StatusMetrics(Protocol):
    """Sums up the statuses of all objects."""

    def record(self, key: Key, status: InferenceDeploymentStatus) -> None:
        """Record the object's current status."""
        ...

    def forget(self, key: Key) -> None:
        """Drop an object that is gone."""
        ...


class Reconciler:
    """Brings InferenceDeployments closer to their specs, one step a call.

    `add_correction` stores a memory correction that a start gave; it never raises.
    `update_adapters` starts calls that change the adapters of pods, and waits for none of them.
    """

    def __init__(
        self,
        sources: Sources,
        writer: Writer,
        planner: Planner,
        record_event: RecordEvent,
        status_metrics: StatusMetrics,
        now: Callable[[], datetime],
        add_correction: Callable[[MemoryCorrection], Awaitable[None]],
        update_adapters: Callable[[Key, tuple[PodCalls, ...]], None],
    ) -> None:
        self._sources = sources
        self._writer = writer
        self._planner = planner
        self._record_event = record_event
        self._status_metrics = status_metrics
        self._now = now
        self._add_correction = add_correction
        self._update_adapters = update_adapters

    async def reconcile(self, key: Key) -> Requeue:
        """Bring one InferenceDeployment one step closer to its spec and report the result."""
        observation = await self._observe(key)
        if observation is None:  # deleted, as its owned children are; or served by another shard
            self._forget(key)
            return Requeue()
        plan = self._planner.plan(observation, self._now())
        if not await self._may_create(observation, plan):
            return Requeue(delays.BATCH)
        executed = await self._execute(observation, plan)
        self._update_adapters(key, executed.adapter_calls)
        await self._report(observation, executed.status)
        for correction in executed.corrections:
            await self._add_correction(correction)
        return executed.requeue

    async def _observe(self, key: Key) -> Observation | None:
        try:
            return await observe(self._sources, key)
        except ApiError as error:
            # An object that cannot be observed keeps no other waiting; its retry brings it back.
            self._planner.withdraw(key, self._now())
            if isinstance(error, ForbiddenError):
                await self._report_unknown(key, error.right)
            raise

    async def _may_create(self, observation: Observation, plan: Plan) -> bool:
        """Whether no child would be created for an object that is gone.

        The garbage collector deletes the children of a deleted object. Where their events come
        before that of the object, the operator would create them anew, again and again.
        """
        is_new = not observation.previous_status
        if is_new or not any(map(creates, plan.all_actions)):
            return True
        return await self._writer.still_exists(observation)

    async def _execute(self, observation: Observation, plan: Plan) -> Plan:
        """Execute the plan; return it as far as the API server accepted it."""
        remainder = await self._execute_children(observation, plan)
        if remainder is not None:
            return self._planner.adopt(observation, remainder, self._now())
        plan = await self._execute_budget(observation.key, plan)
        plan = await self._execute_prefetch(plan)
        error = await execute_optional(self._writer, plan.optional)
        if error is not None:
            return with_optional_child_error(plan, error)
        # A write has effects that the plan did not see, and not all of them are watched.
        batch = delays.BATCH if plan.all_actions else None
        return replace(plan, requeue=plan.requeue.or_after(batch))

    async def _execute_budget(self, key: Key, plan: Plan) -> Plan:
        """Execute the actions on the budget; return the plan without them where that fails."""
        error = await execute_optional(self._writer, plan.budget)
        if error is None:
            return plan
        _log.warning("PodDisruptionBudget of %s/%s not written: %s", *key, error.message)
        retry = delays.REQUEUE_UNWATCHED if error.passing else None
        return replace(plan, budget=(), requeue=plan.requeue.or_after(retry))

    async def _execute_prefetch(self, plan: Plan) -> Plan:
        """Execute the actions on Jobs that prefetch; return the plan with the causes where some
        fail."""
        prefetch = plan.status_input.prefetch
        failed = await execute_each(self._writer, plan.observation, prefetch.actions)
        if not failed:
            return plan
        status_input = replace(plan.status_input, prefetch=prefetch.failed(failed))
        requeue = plan.requeue.or_after(delays.REQUEUE_UNWATCHED)
        return replace(plan, status_input=status_input, requeue=requeue)

    async def _execute_children(self, observation: Observation, plan: Plan) -> Plan | None:
        """Execute what the replicas need; return what remains of the plan where that is refused."""
        try:
            stopped = await execute(self._writer, observation, plan.actions)
        except ForbiddenError as error:
            if error.right is None:
                raise
            return plan_without_right(plan, error.right)
        if stopped is None:
            return None
        remainder = plan_refusal(observation, stopped.why, self._now())
        if stopped.done:
            # Objects made before the refusal hold GPUs but were not observed. Their events requeue
            # the key, and the next reconcile observes them.
            return replace(remainder, reservations=plan.reservations)
        await execute(self._writer, observation, remainder.actions)
        return remainder

    async def _report(self, observation: Observation, status: InferenceDeploymentStatus) -> None:
        await report(self._writer, self._record_event, observation, status)
        self._status_metrics.record(observation.key, status)

    async def _report_unknown(self, key: Key, right: Right | None) -> None:
        """Report that the state of the object is unknown without this right."""
        observation = observe_object(self._sources, key)
        status = None
        if observation is not None and right is not None:
            status = make_unobserved_status(observation, right, self._now())
        if observation is not None and status is not None:
            await self._report(observation, status)

    def _forget(self, key: Key) -> None:
        self._status_metrics.forget(key)
        self._planner.forget(key, self._now())
