"""What is to be done about one InferenceDeployment, as data. Pure: no I/O, no clock.

The road: accept the spec, place the replicas, render the children, and say what was found. A
refusal at any step leaves running children as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from tonnage.api.inference import FallbackReturn
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.placement.memory import Memory
from tonnage.reconcile.accept import Accepted, Refused, accept
from tonnage.reconcile.actions import Action, Delete, apply_if_changed, stamped
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.key import Requeue
from tonnage.reconcile.ledger import reserve_for
from tonnage.reconcile.move import MoveReason, with_move
from tonnage.reconcile.moves import Wish, is_under_way
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
from tonnage.reconcile.turn import ALONE, Turn
from tonnage.render.deployment import render_deployment
from tonnage.render.model import Owner, RenderSettings, SurgeMode
from tonnage.render.names import placement_name
from tonnage.render.service import render_service


@dataclass(frozen=True, slots=True)
class World:
    """What all plans share: the catalogue, the operator's settings for rendering, and what was
    found out for the plans before, which changes no plan."""

    catalog: Catalog
    settings: RenderSettings
    memory: Memory = field(default_factory=Memory, compare=False)


@dataclass(frozen=True, slots=True)
class Plan:
    """Actions in their order, the status to be reported, and what is reserved meanwhile.

    `children` are those that the replicas are to run as, complete, whether or not they have to be
    written now; `waits_for_capacity`: the key is to be woken when GPUs become free. `moves`: it has
    left a pool and does not all serve from the new one yet; `wish` is to leave its own by choice.
    """

    actions: tuple[Action, ...]
    status: InferenceDeploymentStatus
    reservations: tuple[Reservation, ...]
    requeue: Requeue
    children: tuple[Object, ...] = ()
    waits_for_capacity: bool = False
    moves: bool = False
    wish: Wish | None = None


def make_plan(
    observation: Observation,
    fleet: Fleet,
    world: World,
    now: datetime,
    turn: Turn = ALONE,
) -> Plan:
    """The next step that brings the object closer to its spec; `turn` is what others leave."""
    accepted = accept(observation, world.catalog)
    if isinstance(accepted, Refused):
        return _stand_still(observation, accepted, now)
    placing = place(observation, accepted, fleet, world.catalog, world.memory, now, turn)
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
        moves=is_under_way(observation.deployments),
    )


def _wait(
    observation: Observation, accepted: Accepted, placing: Held | Unplaced, now: datetime
) -> Plan:
    """No room or no fit: what runs goes on running, and free GPUs wake the key."""
    return Plan(
        actions=(),
        status=make_status(observation, Outlook(accepted, placing), now),
        reservations=_reservations(observation, observation.deployments),
        requeue=_look_again(now, None if isinstance(placing, Unplaced) else placing.until),
        waits_for_capacity=True,
        moves=is_under_way(observation.deployments),
    )


def _look_again(now: datetime, *moments: datetime | None) -> Requeue:
    """At the first of the moments that are still to come; without one, when something happens."""
    to_come = [moment for moment in moments if moment is not None and moment > now]
    return Requeue((min(to_come) - now).total_seconds() if to_come else None)


def _sets_out(placed: Placed, now: datetime) -> bool:
    return placed.moved is not None and placed.moved.at == now


def _waits_to_return(accepted: Accepted, placed: Placed) -> bool:
    """Whether room in the pool that the replicas had to leave is what they wait for."""
    fell_back = placed.moved is not None and placed.moved.reason is MoveReason.FELL_BACK
    return fell_back and accepted.spec.placement.fallback.back is not FallbackReturn.NEVER


def _wish(observation: Observation, placed: Placed) -> Wish | None:
    prospect = placed.prospect
    if prospect is None:
        return None
    due = prospect.moves_at if prospect.at_rest else None
    return Wish(due, prospect.claim(observation.owner))


def _carry_out(
    observation: Observation,
    accepted: Accepted,
    placed: Placed,
    fleet: Fleet,
    world: World,
    now: datetime,
) -> Plan:
    """Make the children what the placement asks for; old placements leave when they may."""
    service = render_service(_owner(observation))
    deployment = _render(observation, accepted, placed, fleet, world)
    target = find_deployment(observation, deployment)
    others = [found for found in observation.deployments if found is not target]
    rolls = apply_if_changed(DEPLOYMENTS, deployment, target.child if target else None)
    settled = target if not rolls else None
    outlook = Outlook(accepted, placed, settled, image=_image(deployment))
    prospect = placed.prospect
    return Plan(
        actions=(
            *apply_if_changed(SERVICES, service, observation.service),
            *rolls,
            *(
                Delete(DEPLOYMENTS, observation.key.namespace, found.child)
                for found in others
                if _may_leave(found, settled, placed.granted)
            ),
        ),
        status=make_status(observation, outlook, now),
        reservations=(_reserve(observation, placed), *_reservations(observation, others)),
        requeue=_look_again(now, placed.leaves_at, prospect.moves_at if prospect else None),
        children=(stamped(service), stamped(deployment)),
        waits_for_capacity=placed.is_short or _waits_to_return(accepted, placed),
        moves=_sets_out(placed, now) or is_under_way(observation.deployments),
        wish=_wish(observation, placed),
    )


def _render(
    observation: Observation,
    accepted: Accepted,
    placed: Placed,
    fleet: Fleet,
    world: World,
) -> Object:
    rendered = render_deployment(
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
    deployment = with_move(rendered, placed.moved)
    return with_strategy(deployment, observation, accepted.spec, placed, fleet)


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
