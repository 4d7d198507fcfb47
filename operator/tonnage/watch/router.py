"""Where an event goes: to the queue as keys, and to the fleet's cache."""

import asyncio
from typing import Final, Protocol

from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import Looks
from tonnage.reconcile.newborns import Newborns
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.watch.echoes import Echoes
from tonnage.watch.lists import generation_of
from tonnage.watch.mappers import keys_for, priority_of, version_of

ECHO_SECONDS: Final = 1.0
"""An event of what was read or written already, as of the operator's own writes, waits so long for
others: one look then answers them all."""

_FLEET: Final = frozenset({NODES, PODS, ACCELERATOR_POOLS})
_FLEET_BY_PLURAL: Final = {kind.plural: kind for kind in _FLEET}


class EventObserver(Protocol):
    """Told of each event, for metrics."""

    def event_seen(self, plural: str) -> None:
        """An event of a kind came from the watch."""
        ...


class KeySink(Protocol):
    """Where keys go that need work."""

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        """Now."""
        ...

    def add_after(self, key: Key, seconds: float) -> None:
        """Later."""
        ...


class EventRouter:
    """Takes in events; does no I/O and never waits.

    `looks` hears which versions there are: what was read before holds until there is another;
    `echoes` hears that there was an event.
    `newborns` hears of objects that nothing else is known of, and of what becomes known of them.
    `specs` learns the generations of InferenceDeployments. `relist` is set when a watch of the
    fleet was begun anew, `resync` for any other watch: what was deleted meanwhile, nobody tells.
    """

    def __init__(
        self,
        queue: KeySink,
        looks: Looks,
        echoes: Echoes,
        newborns: Newborns,
        fleet: FleetState,
        specs: SeenObjects[int],
        relist: asyncio.Event,
        resync: asyncio.Event,
        observer: EventObserver,
    ) -> None:
        self._queue = queue
        self._looks = looks
        self._echoes = echoes
        self._newborns = newborns
        self._fleet = fleet
        self._specs = specs
        self._relist = relist
        self._resync = resync
        self._observer = observer

    def route(self, kind: Kind, event_type: str | None, obj: Object) -> None:
        """An event of the watch; `event_type` is None for an object that a list showed."""
        self._observer.event_seen(kind.plural)
        if kind in _FLEET:
            self._tell_fleet(kind, event_type, obj)
        elif kind == INFERENCE_DEPLOYMENTS:
            self._tell_specs(event_type, obj)
        priority, (uid, version) = priority_of(kind, obj), version_of(event_type, obj)
        self._echoes.hear(uid)
        if not self._fleet.view().shard.has(obj):  # a pod that takes GPUs, of another shard
            return
        for key in keys_for(kind, obj):
            self._tell_newborns(key, kind, event_type, obj)
            is_news = self._looks.tell(key, uid, version)
            if priority is not Priority.NEW_GENERATION and self._newborns.rests(key):
                continue
            if is_news:
                self._queue.add(key, priority)
            elif not self._looks.is_at_rest(key):
                self._queue.add_after(key, ECHO_SECONDS)

    def begun_anew(self, plural: str) -> None:
        """The watch of a kind was begun anew with a list, which may have shown nothing at all."""
        self._looks.forget_all()
        self._newborns.forget_all()
        if (kind := _FLEET_BY_PLURAL.get(plural)) is not None:
            self._fleet.begin_anew(kind)
            self._relist.set()
            return
        if plural == INFERENCE_DEPLOYMENTS.plural:
            self._specs.begin_anew()
        self._resync.set()

    def _tell_newborns(self, key: Key, kind: Kind, event_type: str | None, obj: Object) -> None:
        if kind == INFERENCE_DEPLOYMENTS and key.name == obj["metadata"]["name"]:
            self._newborns.tell(key, event_type, obj)
        else:
            self._newborns.outgrow(key, kind)

    def _tell_specs(self, event_type: str | None, obj: Object) -> None:
        identity, uid, generation = generation_of(obj)
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
                self._queue.add(key)
