"""What is to be done about one InferenceDeployment, as data. Pure: no I/O, no clock.

The road: accept the spec, place the replicas, render the children, and say what was found. A
refusal at any step leaves running children as they are.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial

from tonnage.api.inference import Approval, FallbackReturn
from tonnage.api.names import LABEL_PLACEMENT
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.kube.rights import Right
from tonnage.placement.memory import Memory
from tonnage.reconcile.accept import Accepted, Refused, accept
from tonnage.reconcile.actions import Action, Delete, Scale, apply_if_changed, stamped
from tonnage.reconcile.approval import UNASKED, Awaiting, Standing, terms_in_force
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.forbidden import RETRY_SECONDS, tell_unchanged
from tonnage.reconcile.gate import Gate, settle_as_approved
from tonnage.reconcile.gateway import (
    GatewayPlan,
    hindered,
    mark_service,
    plan_gateway,
    tell_gateway,
)
from tonnage.reconcile.key import Requeue
from tonnage.reconcile.ledger import reserve_for
from tonnage.reconcile.move import MoveReason, with_move
from tonnage.reconcile.moves import Wish, is_under_way
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.optional_child import Hindrance
from tonnage.reconcile.outlook import Outlook
from tonnage.reconcile.place import Held, Placed, Unplaced, place
from tonnage.reconcile.remember import remember
from tonnage.reconcile.rollout import find_deployment, with_strategy
from tonnage.reconcile.scaling import scale_in_force
from tonnage.reconcile.serving import placed_for, serving_deployment
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

    `optional` come after all others, and what is in the way of one is only told.
    `children` are those that the replicas are to run as, complete, whether or not they have to be
    written now; `waits_for_capacity`: the key is to be woken when GPUs become free. `moves`: it has
    left a pool and does not all serve from the new one yet; `wish` is to leave its own by choice.
    """

    actions: tuple[Action, ...]
    status: InferenceDeploymentStatus
    reservations: tuple[Reservation, ...]
    requeue: Requeue
    optional: tuple[Action, ...] = ()
    children: tuple[Object, ...] = ()
    waits_for_capacity: bool = False
    moves: bool = False
    wish: Wish | None = None

    @property
    def all_actions(self) -> tuple[Action, ...]:
        """All that is to be done, whatever may become of some of it."""
        return (*self.actions, *self.optional)


def make_plan(
    observation: Observation,
    fleet: Fleet,
    world: World,
    now: datetime,
    turn: Turn = ALONE,
) -> Plan:
    """The next step that brings the object closer to its spec; `turn` is what others leave."""
    plan = _plan_replicas(observation, fleet, world, now, turn)
    return _with_gateway(plan, observation, now)


def _plan_replicas(
    observation: Observation, fleet: Fleet, world: World, now: datetime, turn: Turn
) -> Plan:
    """The replicas and their Service, whatever becomes of all else."""
    accepted = accept(observation, world.catalog)
    if isinstance(accepted, Refused):
        return _stand_still(observation, accepted, now)
    if accepted.spec.approval is Approval.MANUAL:
        return _plan_as_approved(observation, accepted, fleet, world, now, turn)
    placing = place(observation, accepted, fleet, world.catalog, world.memory, now, turn)
    if isinstance(placing, Placed):
        return _carry_out(observation, accepted, placing, fleet, world, now)
    return _wait(observation, accepted, placing, now)


def plan_refusal(observation: Observation, refused: Refused, now: datetime) -> Plan:
    """What remains when a plan cannot be carried out: nothing is done, and status says why."""
    return _with_gateway(_stand_still(observation, refused, now), observation, now)


def plan_hindered(observation: Observation, plan: Plan, why: Hindrance, now: datetime) -> Plan:
    """The plan as carried out but for its optional actions, with what was in their way."""
    return _told_of_gateway(plan, hindered(why), observation, now)


def _with_gateway(plan: Plan, observation: Observation, now: datetime) -> Plan:
    """The plan, with what is to be done about an InferencePool beside the replicas."""
    placed = bool(plan.children)
    gateway = plan_gateway(observation, _owner(observation), placed=placed)
    plan = replace(plan, optional=gateway.actions, children=(*plan.children, *gateway.children))
    return _told_of_gateway(plan, gateway, observation, now)


def _told_of_gateway(
    plan: Plan, gateway: GatewayPlan, observation: Observation, now: datetime
) -> Plan:
    status = tell_gateway(plan.status, gateway.finding, observation, now)
    return replace(plan, status=status, requeue=plan.requeue.or_after(gateway.again_seconds))


def plan_without_right(observation: Observation, plan: Plan, right: Right, now: datetime) -> Plan:
    """What remains of a plan that the operator may not carry out: its findings, and the lack.

    Only what exists is reserved, since others may be able to go on.
    """
    remains = Plan(
        actions=(),
        status=tell_unchanged(plan.status, observation, right, now),
        reservations=_reservations(observation, observation.deployments),
        requeue=Requeue(RETRY_SECONDS),
        moves=is_under_way(observation.deployments),
    )
    return _with_gateway(remains, observation, now)


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


def _plan_as_approved(
    observation: Observation,
    accepted: Accepted,
    fleet: Fleet,
    world: World,
    now: datetime,
    turn: Turn,
) -> Plan:
    """The next step within what a person has approved; what goes beyond it is proposed."""
    spec = accepted.spec
    settle = partial(place, observation, accepted, fleet, world.catalog, world.memory, now)
    render = partial(_render, observation, accepted, fleet=fleet, world=world)
    gate = Gate(observation, spec, terms_in_force(observation, spec, fleet), render)
    placing, standing = settle_as_approved(gate, settle, turn)
    if isinstance(placing, Placed):
        return _carry_out(observation, accepted, placing, fleet, world, now, standing)
    plan = _wait(observation, accepted, placing, now, standing)
    if isinstance(placing, Awaiting):
        return _with_scale(plan, scale_in_force(observation, accepted, fleet, turn))
    return plan


def _wait(
    observation: Observation,
    accepted: Accepted,
    placing: Held | Unplaced | Awaiting,
    now: datetime,
    standing: Standing = UNASKED,
) -> Plan:
    """No room, no fit, or no approval: what runs goes on running, and free GPUs wake the key."""
    outlook = Outlook(accepted, placing, standing=standing)
    return Plan(
        actions=(),
        status=make_status(observation, outlook, now),
        reservations=_reservations(observation, observation.deployments),
        requeue=_look_again(now, placing.until if isinstance(placing, Held) else None),
        waits_for_capacity=True,
        moves=is_under_way(observation.deployments),
    )


def _with_scale(plan: Plan, scale: Scale | None) -> Plan:
    """The plan, with another number of replicas of what runs, and that reserved."""
    if scale is None:
        return plan
    placement = scale.child.body["metadata"]["labels"][LABEL_PLACEMENT]
    reservations = tuple(
        replace(found, replicas=scale.replicas) if found.placement == placement else found
        for found in plan.reservations
    )
    return replace(plan, actions=(scale,), reservations=reservations)


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


def _wish(observation: Observation, placed: Placed, standing: Standing) -> Wish | None:
    """What waits for a person holds up no other object that would move."""
    prospect = placed.prospect
    if prospect is None or standing.proposal is not None:
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
    standing: Standing = UNASKED,
) -> Plan:
    """Make the children what the placement asks for; old placements leave when they may."""
    service = mark_service(render_service(_owner(observation)), observation)
    deployment = _render(observation, accepted, placed, fleet, world)
    target = find_deployment(observation, deployment)
    others = [found for found in observation.deployments if found is not target]
    rolls = apply_if_changed(DEPLOYMENTS, deployment, target.child if target else None)
    settled = target if not rolls else None
    outlook = Outlook(accepted, placed, settled, _image(deployment), standing)
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
        wish=_wish(observation, placed, standing),
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
    key = observation.key
    return Owner(key.namespace, key.name, observation.uid, observation.queue)


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
