"""Where an event goes: to the queue as keys, and to the fleet's cache."""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.watch.lists import generation_of
from tonnage.watch.mappers import keys_for

_FLEET: Final = frozenset({NODES, PODS, ACCELERATOR_POOLS})


class EventObserver(Protocol):
    """Told of each event, for metrics."""

    def event_seen(self, plural: str) -> None:
        """An event of a kind came from the watch."""
        ...


class EventRouter:
    """Takes in events; does no I/O and never waits.

    `specs` learns the generations of InferenceDeployments. `relist` is set when a watch was begun
    anew: what was deleted meanwhile, nobody tells.
    """

    def __init__(
        self,
        add: Callable[[Key], None],
        fleet: FleetState,
        specs: SeenObjects[int],
        relist: asyncio.Event,
        observer: EventObserver,
    ) -> None:
        self._add = add
        self._fleet = fleet
        self._specs = specs
        self._relist = relist
        self._observer = observer

    def route(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        """An event of the watch; `event_type` is None for an object that a list showed."""
        self._observer.event_seen(kind.plural)
        if kind in _FLEET:
            self._tell_fleet(kind, event_type, obj)
            if event_type is None:
                self._fleet.begin_anew(kind)
                self._relist.set()
        elif kind == INFERENCE_DEPLOYMENTS:
            self._tell_specs(event_type, obj)
        for key in keys_for(kind, obj):
            self._add(key)

    def _tell_specs(self, event_type: str | None, obj: Object) -> None:
        identity, uid, generation = generation_of(obj)
        if event_type is None:
            self._specs.begin_anew()
        if event_type == "DELETED":
            self._specs.forget(identity, uid)
        else:
            self._specs.observe(identity, uid, generation)

    def _tell_fleet(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        fleet, deleted = self._fleet, event_type == "DELETED"
        if kind == NODES:
            (fleet.forget_node if deleted else fleet.observe_node)(obj)
        elif kind == PODS:
            (fleet.forget_pod if deleted else fleet.observe_pod)(obj)
        elif (fleet.forget_pool if deleted else fleet.observe_pool)(obj):
            # What a pool gives its pods takes effect now, not at the next event by chance.
            for key in sorted(fleet.known_keys()):
                self._add(key)
