"""The loop of one object: observe, plan, execute, report."""

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial
from typing import Protocol

from tonnage.api.inference import HuggingFaceSource
from tonnage.checkpoint.lookup import ModelAnswer, ModelHub
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.kube.protocol import KubeApi
from tonnage.reconcile.execute import execute, find_name_conflict
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.observe import Measure, Observation, observe
from tonnage.reconcile.plan import Plan, World, make_plan, plan_refusal
from tonnage.reconcile.report import EventSink, report


class Fleet(Protocol):
    """The cluster's nodes and GPU pods from the cache, and what is reserved on them."""

    def snapshot(self) -> FleetSnapshot:
        """All of it at this moment."""
        ...

    def reserve(self, key: Key, reservations: Iterable[Reservation]) -> None:
        """What this object's replicas hold or will hold, in place of what was said before."""
        ...

    def release(self, key: Key) -> None:
        """The object is gone: nothing is reserved for it, and it waits for nothing."""
        ...

    def wait_for_capacity(self, key: Key, since: datetime) -> None:
        """Wake the key when GPUs become free, older objects first."""
        ...

    def stop_waiting(self, key: Key) -> None:
        """The key has all the GPUs it wants."""
        ...


class Reconciler:
    """Brings InferenceDeployments closer to their specs, one step a call."""

    def __init__(
        self,
        api: KubeApi,
        hub: ModelHub,
        fleet: Fleet,
        events: EventSink,
        world: World,
        measure: Measure,
        wake: Callable[[Key], None],
        now: Callable[[], datetime],
    ) -> None:
        self._api = api
        self._hub = hub
        self._fleet = fleet
        self._events = events
        self._world = world
        self._measure = measure
        self._wake = wake
        self._now = now

    async def reconcile(self, key: Key) -> Requeue:
        """Bring one InferenceDeployment one step closer to its spec and report what was done."""
        observation = await observe(self._api, partial(self._ask_hub, key), self._measure, key)
        if observation is None:  # deleted: its children are owned, the garbage collector has them
            self._fleet.release(key)
            return Requeue.never()
        plan = self._plan(observation)
        refused = await find_name_conflict(self._api, observation, plan.actions)
        if refused is None:
            refused = await execute(self._api, plan.actions)
        if refused is not None:
            plan = self._adopt(observation, plan_refusal(observation, refused, self._now()))
        await report(self._api, self._events, observation, plan.status)
        return plan.requeue

    def _plan(self, observation: Observation) -> Plan:
        return self._adopt(
            observation,
            make_plan(observation, self._fleet.snapshot(), self._world, self._now()),
        )

    def _adopt(self, observation: Observation, plan: Plan) -> Plan:
        """Reserve what the plan takes before anything else is planned.

        No await stands between the snapshot and this, so planning is serial and no GPU is given
        away twice.
        """
        self._fleet.reserve(observation.key, plan.reservations)
        if plan.waits_for_capacity:
            self._fleet.wait_for_capacity(observation.key, observation.created)
        else:
            self._fleet.stop_waiting(observation.key)
        return plan

    def _ask_hub(self, key: Key, source: HuggingFaceSource, token: str | None) -> ModelAnswer:
        return self._hub.lookup(source, token, partial(self._wake, key))
