"""What is to be done about one InferenceDeployment, as data. Pure: no I/O, no clock.

The road: accept the spec, place the replicas, render the children, and say what was found. A
refusal at any step leaves running children as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from tonnage.api.status import InferenceDeploymentStatus
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.accept import Accepted, Refused, accept
from tonnage.reconcile.actions import Action, Delete, apply_if_changed
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.key import Requeue
from tonnage.reconcile.ledger import reserve_for
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outlook import Outlook
from tonnage.reconcile.place import (
    Held,
    Placed,
    Unplaced,
    place,
    placed_for,
    serving_deployment,
)
from tonnage.reconcile.remember import remember
from tonnage.reconcile.rollout import find_deployment, with_strategy
from tonnage.reconcile.status import make_status
from tonnage.render.deployment import render_deployment
from tonnage.render.model import Owner, RenderSettings, SurgeMode
from tonnage.render.names import placement_name
from tonnage.render.service import render_service


@dataclass(frozen=True, slots=True)
class World:
    """What all plans share: the catalogue and the operator's settings for rendering."""

    catalog: Catalog
    settings: RenderSettings


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in their order, the status to be reported, and what is reserved meanwhile.

    `waits_for_capacity`: the key is to be woken when GPUs become free.
    """

    actions: tuple[Action, ...]
    status: InferenceDeploymentStatus
    reservations: tuple[Reservation, ...]
    requeue: Requeue
    waits_for_capacity: bool = False


def make_plan(observation: Observation, fleet: FleetSnapshot, world: World, now: datetime) -> Plan:
    """The next step that brings the object closer to its spec."""
    accepted = accept(observation, world.catalog)
    if isinstance(accepted, Refused):
        return _stand_still(observation, accepted, now)
    placing = place(observation, accepted, fleet, world.catalog, now)
    if isinstance(placing, Placed):
        return _carry_out(observation, accepted, placing, fleet, world, now)
    return _wait(observation, accepted, placing, now)


def plan_refusal(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """What remains when a plan cannot be carried out: nothing is done, and status says why."""
    return _stand_still(observation, refused, now)


def _stand_still(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """Change nothing; where the refusal is only that nothing is known now, nothing is unsaid."""
    remembered = remember(observation, refused)
    outlook = Outlook(accepted=refused)
    if remembered is not None:
        outlook = Outlook(accepted=remembered, target=serving_deployment(observation))
    return Plan(
        actions=(),
        status=make_status(observation, outlook, now),
        reservations=_reservations(observation, observation.deployments),
        requeue=Requeue(refused.retry_after_seconds),
    )


def _wait(
    observation: Observation, accepted: Accepted, placing: Held | Unplaced, now: datetime
) -> Plan:
    """No room or no fit: what runs goes on running, and free GPUs wake the key."""
    return Plan(
        actions=(),
        status=make_status(observation, Outlook(accepted, placing), now),
        reservations=_reservations(observation, observation.deployments),
        requeue=_look_again(placing, now),
        waits_for_capacity=True,
    )


def _look_again(placing: Held | Unplaced, now: datetime) -> Requeue:
    if isinstance(placing, Unplaced) or placing.until is None:
        return Requeue.never()
    return Requeue.after((placing.until - now).total_seconds())


def _carry_out(
    observation: Observation,
    accepted: Accepted,
    placed: Placed,
    fleet: FleetSnapshot,
    world: World,
    now: datetime,
) -> Plan:
    """Make the children what the placement asks for; old placements leave when they may."""
    deployment = _render(observation, accepted, placed, fleet, world)
    target = find_deployment(observation, deployment)
    others = [found for found in observation.deployments if found is not target]
    rolls = apply_if_changed(DEPLOYMENTS, deployment, target.child if target else None)
    settled = target if not rolls else None
    outlook = Outlook(accepted, placed, settled, image=_image(deployment))
    return Plan(
        actions=(
            *apply_if_changed(SERVICES, render_service(_owner(observation)), observation.service),
            *rolls,
            *(
                Delete(DEPLOYMENTS, observation.key.namespace, found.child)
                for found in others
                if _may_leave(found, settled, placed.granted)
            ),
        ),
        status=make_status(observation, outlook, now),
        reservations=(_reserve(observation, placed), *_reservations(observation, others)),
        requeue=Requeue.never(),
        waits_for_capacity=placed.granted < placed.option.replicas,
    )


def _render(
    observation: Observation,
    accepted: Accepted,
    placed: Placed,
    fleet: FleetSnapshot,
    world: World,
) -> Object:
    deployment = render_deployment(
        _owner(observation),
        accepted.spec,
        accepted.checkpoint,
        placed.option,
        replicas=placed.granted,
        surge=SurgeMode.SURGE,
        placed_for=placed_for(accepted.spec),
        catalog=world.catalog,
        settings=world.settings,
    )
    return with_strategy(deployment, observation, accepted.spec, placed, fleet, world.catalog)


def _may_leave(other: ChildDeployment, replacement: ChildDeployment | None, granted: int) -> bool:
    """An old placement goes when it serves nobody, or when the new one serves in its stead."""
    served = replacement is not None and replacement.settled and replacement.ready >= granted
    return other.ready == 0 or served


def _owner(observation: Observation) -> Owner:
    return Owner(observation.key.namespace, observation.key.name, observation.uid)


def _image(deployment: Object) -> str:
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def _reserve(observation: Observation, placed: Placed) -> Reservation:
    return Reservation(
        owner=observation.owner,
        placement=placement_name(placed.option),
        pool=placed.option.pool.name,
        gpus_per_replica=placed.option.parallelism.gpus,
        replicas=placed.granted,
    )


def _reservations(
    observation: Observation, deployments: Iterable[ChildDeployment]
) -> tuple[Reservation, ...]:
    return tuple(reserve_for(observation.owner, found) for found in deployments)
