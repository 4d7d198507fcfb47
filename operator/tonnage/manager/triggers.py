"""Event handlers of the stores, as in client-go: they enqueue keys and update the fleet state.

They do no I/O and never block.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from tonnage import delays
from tonnage.controller.queueing.priority import Priority
from tonnage.informers.owners import ANY_OWNER
from tonnage.informers.store import Change
from tonnage.informers.stores import unpack
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEVICE_CLASSES,
    INFERENCE_DEPLOYMENTS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
)
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key


class KeyQueue(Protocol):
    """The work queue."""

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        """Add the key now."""
        ...

    def add_after(self, key: Key, seconds: float) -> None:
        """Add the key after a delay; of several delays the earliest applies."""
        ...


class Triggers:
    """Handles changes of the stores."""

    def __init__(self, queue: KeyQueue, fleet: FleetState) -> None:
        self._queue = queue
        self._fleet = fleet

    def on_change(self, kind: Kind, change: Change[Any]) -> None:
        """Handle an object of this kind that was added, changed or deleted."""
        if kind == NODES:
            self._fleet.change_node(change.place[1], change.before, change.after)
        elif kind == ACCELERATOR_POOLS:
            self._change_pool(change)
        elif kind == PODS:
            self._change_pod(change)
        elif kind == RESOURCE_SLICES:
            self._fleet.change_slice(change.before, change.after)
        elif kind == RESOURCE_CLAIMS:
            self._fleet.change_claim(change.before, change.after)
        elif kind == DEVICE_CLASSES:
            self._fleet.change_device_class(change.before, change.after)
        elif kind == POD_DISRUPTION_BUDGETS:
            self._change_budget(change)
        elif kind in (RESOURCE_QUOTAS, LIMIT_RANGES, NAMESPACES):
            self._wake_namespace(change, self._fleet.waiting_keys())
        else:
            self._wake_owners(kind, change)

    def _change_pool(self, change: Change[bytes]) -> None:
        if self._fleet.change_pool(change.place[1], change.obj):
            # The pool's settings for pods must take effect now, not at some later event.
            for key in sorted(self._fleet.known_keys()):
                self._queue.add(key)

    def _change_pod(self, change: Change[Any]) -> None:
        before, after = change.before, change.after
        self._fleet.change_pod(
            None if before is None else before.gpus, None if after is None else after.gpus
        )
        if change.obj is None or self._fleet.view().shard.has(change.obj):
            self._wake_owners(PODS, change)

    def _change_budget(self, change: Change[bytes]) -> None:
        """Its status, which follows the pods, needs no reconcile."""
        before, after = change.before, change.obj
        if before is not None and after is not None and unpack(before)["spec"] == after["spec"]:
            return
        self._wake_namespace(change, sorted(self._fleet.known_keys()))
        self._wake_owners(POD_DISRUPTION_BUDGETS, change)

    def _wake_namespace(self, change: Change[bytes], keys: Iterable[Key]) -> None:
        """Enqueue the keys in the namespaces in which the object counts for every owner."""
        namespaces = {namespace for namespace, name in change.owners if name == ANY_OWNER}
        for key in keys:
            if key.namespace in namespaces:
                self._queue.add_after(key, delays.BATCH)

    def _wake_owners(self, kind: Kind, change: Change[Any]) -> None:
        for key in map(Key._make, change.owners):
            if key.name == ANY_OWNER:
                continue
            if kind == INFERENCE_DEPLOYMENTS and key == change.place:
                priority = priority_of(change.obj)
                # The operator's own status writes need no reconcile. A deleted endpoint does: its
                # reservations must be released.
                is_gone = change.obj is None or "deletionTimestamp" in change.obj["metadata"]
                if not change.is_own or is_gone or priority is Priority.NEW_GENERATION:
                    self._queue.add(key, priority)
            else:
                # Other controllers write a child several times in quick succession.
                self._queue.add_after(key, delays.BATCH)


def priority_of(obj: Object | None) -> Priority:
    """NEW_GENERATION if the status has not observed the object's generation, else EVENT."""
    if obj is None:
        return Priority.EVENT
    generation = obj["metadata"].get("generation")
    status = obj.get("status")
    observed = status.get("observedGeneration") if isinstance(status, dict) else None
    return Priority.EVENT if observed == generation else Priority.NEW_GENERATION
