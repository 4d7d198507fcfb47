"""How old placements leave when others come up in their stead: replica by replica.

An old placement keeps what is still missing of the new one. So as many replicas as before serve at
any moment, as long as their nodes live; and where the new pool has room for some only, the old one
carries the rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS
from tonnage.reconcile.actions import Action, Delete, Scale
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.key import Key
from tonnage.reconcile.ledger import reserve_for


@dataclass(frozen=True, slots=True)
class Handover:
    """What becomes of the old placements now, and what they hold from then on."""

    actions: tuple[Action, ...]
    reservations: tuple[Reservation, ...]


def hand_over(
    key: Key,
    old: Iterable[ChildDeployment],
    new: ChildDeployment | None,
    wanted: int,
    beside: Iterable[ChildDeployment | None] = (),
) -> Handover:
    """Let go of each old placement as far as `new` and those `beside` it serve in its stead; None:
    it has to be written first. `wanted` are the replicas there are to be in the end."""
    ready = _count_ready((new, *beside))
    actions: list[Action] = []
    reservations: list[Reservation] = []
    for found in old:
        kept = _kept(found, ready, wanted)
        if kept == 0:
            actions.append(Delete(DEPLOYMENTS, key.namespace, found.child))
        elif kept < found.wanted:
            actions.append(Scale(DEPLOYMENTS, key.namespace, found.child, kept))
        held = reserve_for((key.namespace, key.name), found)
        reservations.append(replace(held, replicas=kept or found.wanted))
    return Handover(tuple(actions), tuple(reservations))


def _count_ready(new: Iterable[ChildDeployment | None]) -> int | None:
    """Replicas that serve as they are to, None while any placement is still being changed."""
    ready = 0
    for found in new:
        if found is None or not found.settled:
            return None
        ready += found.ready
    return ready


def _kept(old: ChildDeployment, ready: int | None, wanted: int) -> int:
    """Replicas that an old placement goes on with; 0: it goes, since it serves nobody, or since the
    new one serves in its stead.

    Where the new one needs fewer replicas, one of them stands for several old ones, and nobody
    knows for how many: then the old ones stay until all of the new ones serve.
    """
    if old.ready == 0:
        return 0
    if ready is None:
        return old.wanted
    missing = max(0, wanted - ready)
    if missing and wanted < old.wanted:
        return old.wanted
    return min(old.wanted, missing)
