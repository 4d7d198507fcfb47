"""The loop of one object: observe, plan, execute, report."""

from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import Protocol

from tonnage.api.inference import HuggingFaceSource
from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.checkpoint.lookup import ModelAnswer, ModelHub
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import ApiError, KubeApi
from tonnage.reconcile.execute import execute, find_name_conflict
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import Measure, Observation, observe
from tonnage.reconcile.plan import World, plan_refusal
from tonnage.reconcile.planner import Planner, SharedFleet
from tonnage.reconcile.priority import Priorities
from tonnage.reconcile.report import EventSink, report


class FleetCache(SharedFleet, Protocol):
    """The fleet as the operator keeps it."""

    def release(self, key: Key) -> None:
        """The object is gone: nothing is reserved for it, and it waits for nothing."""
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
        world: World,
        measure: Measure,
        wake: Callable[[Key], None],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._hub = hub
        self._fleet = fleet
        self._moves = moves
        self._priorities = Priorities(api, now)
        self._events = events
        self._planner = Planner(fleet, moves, world, wake)
        self._measure = measure
        self._wake = wake
        self._now = now

    async def prime(self) -> None:
        """Learn what is reserved, who waits and who moves, before the first reconcile of a leader.

        Raises ApiError.
        """
        self._planner.prime(
            await self._api.list(DEPLOYMENTS, labels={LABEL_MANAGED_BY: MANAGED_BY}),
            await self._api.list(INFERENCE_DEPLOYMENTS),
            await self._priorities.read(),
        )

    async def reconcile(self, key: Key) -> Requeue:
        """Bring one InferenceDeployment one step closer to its spec and report what was done."""
        observation = await self._observe(key)
        if observation is None:  # deleted: its children are owned, the garbage collector has them
            self._fleet.release(key)
            self._call(self._moves.forget(key, self._now()))
            return Requeue.never()
        plan = self._planner.plan(observation, self._now())
        refused = await find_name_conflict(self._api, observation, plan.actions)
        if refused is None:
            refused = await execute(self._api, plan.actions)
        if refused is not None:
            now = self._now()
            plan = self._planner.adopt(observation, plan_refusal(observation, refused, now), now)
        await report(self._api, self._events, observation, plan.status)
        return plan.requeue

    async def _observe(self, key: Key) -> Observation | None:
        ask_hub = partial(self._ask_hub, key)
        try:
            return await observe(self._api, ask_hub, self._measure, key, self._priorities.find)
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
