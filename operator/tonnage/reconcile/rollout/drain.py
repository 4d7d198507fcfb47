"""Shift replicas from old placements to new ones, replica by replica.

An old placement keeps as many replicas as the new one still lacks. So as many replicas as before
serve at any moment, while their nodes live; and if the new pool has capacity for some only, the old
one carries the rest.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tonnage.fleet.model import Reservation
from tonnage.reconcile.actions import Action, Delete, Scale
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.scheduling.reservations import reserve_for


@dataclass(frozen=True, slots=True)
class Drain:
    """The actions on the old placements, and what these hold from then on."""

    actions: tuple[Action, ...]
    reservations: tuple[Reservation, ...]


def shift_replicas(
    key: Key,
    old: Iterable[ChildDeployment],
    new: ChildDeployment | None,
    wanted: int,
    secondary: Iterable[ChildDeployment | None] = (),
) -> Drain:
    """Scale down or delete each old placement as far as `new` and the `secondary` placements
    it serve; None has to be written first. `wanted` is the final number of replicas."""
    ready = _count_ready((new, *secondary))
    actions: list[Action] = []
    reservations: list[Reservation] = []
    for deployment in old:
        kept = _count_kept(deployment, ready, wanted)
        if kept == 0:
            actions.append(Delete(deployment.kind, deployment.child))
        elif (replicas := deployment.replicas_for(kept)) < deployment.wanted:
            actions.append(Scale(deployment.kind, deployment.child, replicas))
        reservation = reserve_for(key, deployment)
        reservations.append(replace(reservation, replicas=kept or deployment.wanted))
    return Drain(tuple(actions), tuple(reservations))


def _count_ready(new: Iterable[ChildDeployment | None]) -> int | None:
    """Ready replicas of settled placements; None while any placement is still rolling out."""
    ready = 0
    for deployment in new:
        if deployment is None or not deployment.settled:
            return None
        ready += deployment.ready
    return ready


def _count_kept(old: ChildDeployment, ready: int | None, wanted: int) -> int:
    """Replicas that an old placement keeps; 0 deletes it: it serves no requests, or the new one
    serves instead.

    If the new one needs fewer replicas, each replaces an unknown number of old ones: then the old
    ones stay until all of the new ones serve.
    """
    if old.ready == 0:
        return 0
    if ready is None:
        return old.wanted
    missing = max(0, wanted - ready)
    if missing and wanted < old.wanted:
        return old.wanted
    return min(old.wanted, missing)
