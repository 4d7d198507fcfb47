"""Pods of groups that were deleted after a container of theirs had restarted, for a while.

A controller that recreates a group for a restart deletes its pods within milliseconds: when the
object is reconciled, the store has only their successors.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.informers.store import ObjectKey
from tonnage.kube.protocol import Object
from tonnage.workloads.registry import is_in_group

_OBJECTS: Final = 256
_PODS: Final = 20
"""Pods of one object that are deleted between two reconciles, and some to spare."""


class EndedPods:
    """The latest of these pods, by InferenceDeployment (namespace, name)."""

    def __init__(self) -> None:
        self._by_owner: OrderedDict[ObjectKey, deque[Object]] = OrderedDict()

    def note(self, owners: Iterable[ObjectKey], body: Object) -> None:
        """Keep a deleted pod of a group, if a container of it has restarted. `body` is hostile."""
        labels = as_mapping(body["metadata"].get("labels"))
        if not is_in_group(labels) or not _has_restarted(body):
            return
        for owner in owners:
            self._by_owner.setdefault(owner, deque(maxlen=_PODS)).append(body)
            self._by_owner.move_to_end(owner)
            if len(self._by_owner) > _OBJECTS:
                self._by_owner.popitem(last=False)

    def take(self, owner: ObjectKey) -> list[Object]:
        """Return the pods of an object, the oldest first, and forget them."""
        return list(self._by_owner.pop(owner, ()))


def _has_restarted(body: Object) -> bool:
    status = as_mapping(body.get("status"))
    return any(
        as_mapping(container).get("restartCount")
        for kind in ("containerStatuses", "initContainerStatuses")
        for container in as_sequence(status.get(kind))
    )
