"""Shift replicas from old placements to new ones, replica by replica.

An old placement keeps as many replicas as the new one still lacks. So as many replicas as before
serve at any moment, while their nodes live; and if the new pool has capacity for some only, the old
one carries the rest.

Old replicas on another number of nodes of the same pool may hold the GPUs that the new ones wait
for. They all stop first, as those of a Deployment that changes its number of GPUs.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace

from tonnage.api.inference import RolloutStrategy
from tonnage.fleet.model import Reservation
from tonnage.reconcile.actions import Action, Delete, Scale
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.pods.scheduler_message import read_verdict
from tonnage.reconcile.observation.serving import pool_now
from tonnage.reconcile.scheduling.context import ReconcileContext
from tonnage.reconcile.scheduling.outcome import Scheduled
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
    in_the_way: Collection[ChildDeployment] = (),
) -> Drain:
    """Scale down or delete each old placement as far as `new` and the `secondary` placements
    it serve; None has to be written first. `wanted` is the final number of replicas. Those
    `in_the_way` are deleted."""
    ready = _count_ready((new, *secondary))
    actions: list[Action] = []
    reservations: list[Reservation] = []
    for deployment in old:
        kept = 0 if deployment in in_the_way else _count_kept(deployment, ready, wanted)
        if kept == 0:
            actions.append(Delete(deployment.kind, deployment.child))
        elif (replicas := deployment.replicas_for(kept)) < deployment.wanted:
            actions.append(Scale(deployment.kind, deployment.child, replicas))
        reservation = reserve_for(key, deployment)
        reservations.append(replace(reservation, replicas=kept or deployment.wanted))
    return Drain(tuple(actions), tuple(reservations))


def find_in_the_way(
    context: ReconcileContext, placed: Scheduled, old: Iterable[ChildDeployment]
) -> list[ChildDeployment]:
    """The old placements in the pool whose GPUs the new replicas lack. None with the strategy
    Surge, which stops no replica before another one serves."""
    if context.spec.rollout.strategy is RolloutStrategy.SURGE:
        return []
    pods, pool = context.observation.pods, placed.option.pool
    lacks_gpus = any(
        read_verdict(pod.unschedulable, pool.resource).lacking_gpus
        for pod in pods
        if pod.placement == placed.option.placement_name and pod.unschedulable is not None
    )
    if not lacks_gpus:
        return []
    pools = context.own_pools()
    return [one for one in old if pool_now(one, pods, pools, context.fleet) == pool.name]


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
