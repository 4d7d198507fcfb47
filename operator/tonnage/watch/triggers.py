"""What a change in the stores wakes: keys in the work queue, and the state of the fleet.

This is what client-go calls event handlers. Nothing here does I/O or waits.
"""

from collections.abc import Callable
from typing import Any, Protocol

from tonnage import delays
from tonnage.informers.store import Change
from tonnage.informers.stores import OWNERS
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority


class KeyQueue(Protocol):
    """Where keys go that need work."""

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        """Now."""
        ...

    def add_after(self, key: Key, seconds: float) -> None:
        """Later; the earliest of several delays counts."""
        ...


class Triggers:
    """Takes in changes. `known_keys` are all keys that a pool that is declared otherwise may
    concern."""

    def __init__(
        self, queue: KeyQueue, fleet: FleetState, known_keys: Callable[[], list[Key]]
    ) -> None:
        self._queue = queue
        self._fleet = fleet
        self._known_keys = known_keys

    def on_change(self, kind: Kind, change: Change[Any]) -> None:
        """An object of this kind came, changed or went."""
        if kind == NODES:
            self._fleet.change_node(change.place[1], change.before, change.after)
        elif kind == ACCELERATOR_POOLS:
            self._change_pool(change)
        elif kind == PODS:
            self._change_pod(change)
        else:
            self._wake_owners(kind, change)

    def _change_pool(self, change: Change[bytes]) -> None:
        if self._fleet.change_pool(change.place[1], change.obj):
            # What a pool gives its pods takes effect now, not at the next event by chance.
            for key in self._known_keys():
                self._queue.add(key)

    def _change_pod(self, change: Change[Any]) -> None:
        before, after = change.before, change.after
        self._fleet.change_pod(
            None if before is None else before.gpus, None if after is None else after.gpus
        )
        if change.obj is None or self._fleet.view().shard.has(change.obj):
            self._wake_owners(PODS, change)

    def _wake_owners(self, kind: Kind, change: Change[Any]) -> None:
        for owner in change.index_keys.get(OWNERS, ()):
            key = Key(*owner)  # type: ignore[misc] # the index has pairs of texts
            if kind == INFERENCE_DEPLOYMENTS and key == change.place:
                priority = priority_of(change.obj)
                # A status that the operator has written says what the last plan came to. Of an
                # endpoint that it has deleted, reservations are left.
                is_gone = change.obj is None or "deletionTimestamp" in change.obj["metadata"]
                if not change.is_own or is_gone or priority is Priority.NEW_GENERATION:
                    self._queue.add(key, priority)
            else:
                # Other controllers write a child several times in a row.
                self._queue.add_after(key, delays.BATCH)


def priority_of(obj: Object | None) -> Priority:
    """A generation that no status tells of yet is what a user has just asked for."""
    if obj is None:
        return Priority.EVENT
    generation = obj["metadata"].get("generation")
    status = obj.get("status")
    observed = status.get("observedGeneration") if isinstance(status, dict) else None
    return Priority.EVENT if observed == generation else Priority.NEW_GENERATION
