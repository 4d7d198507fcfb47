"""What is done about the placements beside the first: a Deployment each, one after the other.

Their replicas are replaced once the first placement serves as it is to be, and each once those
before it do. So a change that fails, fails on one of them, and the others go on serving.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from tonnage.api.names import ANNOTATION_PLACEMENT, ANNOTATION_TEMPLATE
from tonnage.fleet.model import Reservation
from tonnage.kube.kinds import DEPLOYMENTS, SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import Action, Delete, Scale, apply_if_changed, stamped
from tonnage.reconcile.approval import Standing
from tonnage.reconcile.case import Case, owner_of
from tonnage.reconcile.children import ChildDeployment
from tonnage.reconcile.observe import Observation
from tonnage.reconcile.outcome import Scheduled
from tonnage.reconcile.rollout import find_deployment
from tonnage.render.metadata import BESIDE
from tonnage.render.names import placement_name
from tonnage.render.service import render_placement_service


@dataclass(frozen=True, slots=True)
class Beside:
    """One placement beside the first: its Deployment as it is to be, and as it is.

    `target` is the live one where it already is what was rendered, `live` whatever is there.
    """

    placed: Scheduled
    actions: tuple[Action, ...]
    child: Object
    live: ChildDeployment | None
    target: ChildDeployment | None

    @property
    def serves(self) -> bool:
        """Whether all of its replicas do, just as they are to."""
        return self.target is not None and self.target.serves(self.placed.granted)


def carry_out_beside(
    case: Case, placed: Scheduled, standing: Standing, *, first_serves: bool
) -> tuple[Beside, ...]:
    """The Deployments of the placements beside the first; one that waits for approval, or for those
    before it, keeps its template and gets its number of replicas."""
    found: list[Beside] = []
    may_roll = first_serves
    for alone in placed.alone:
        held_back = placement_name(alone.option) in standing.held_back
        one = _carry_out(case, alone, may_roll=may_roll and not held_back)
        found.append(one)
        may_roll = may_roll and one.serves
    return tuple(found)


def look_at_beside(case: Case, placed: Scheduled) -> tuple[Beside, ...]:
    """The same where nothing is to be replaced: those that have the template already are told."""
    return tuple(_look_at(case, alone) for alone in placed.alone)


def image_of(deployment: Object) -> str:
    """Image of the vLLM container."""
    return str(deployment["spec"]["template"]["spec"]["containers"][0]["image"])


def reserve(owner: tuple[str, str], placed: Scheduled) -> Reservation:
    """What the replicas of one placement hold or will hold."""
    return Reservation(
        owner=owner,
        placement=placement_name(placed.option),
        pool=placed.option.pool.name,
        gpus_per_replica=placed.option.parallelism.gpus,
        replicas=placed.granted,
    )


def render_services(observation: Observation, placed: Scheduled) -> tuple[Object, ...]:
    """A Service for each placement, where there are several."""
    owner = owner_of(observation)
    options = [placed.option, *(share.option for share in placed.beside)]
    if not placed.beside:
        return ()
    return tuple(render_placement_service(owner, placement_name(option)) for option in options)


def keep_services(observation: Observation, wanted: tuple[Object, ...]) -> Iterator[Action]:
    """What makes the Services of placements those that are wanted."""
    live = {found.name: found for found in observation.placement_services}
    for service in wanted:
        yield from apply_if_changed(SERVICES, service, live.pop(service["metadata"]["name"], None))
    for found in live.values():
        yield Delete(SERVICES, observation.key.namespace, found)


def _carry_out(case: Case, alone: Scheduled, *, may_roll: bool) -> Beside:
    rendered = _marked(case.render(alone))
    live = find_deployment(case.observation, rendered)
    template = rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    if live is not None and live.template not in ("", template) and not may_roll:
        return _leave(case, alone, live)
    rolls = apply_if_changed(DEPLOYMENTS, rendered, live.child if live else None)
    return Beside(alone, rolls, stamped(rendered), live, live if not rolls else None)


def _look_at(case: Case, alone: Scheduled) -> Beside:
    rendered = _marked(case.render(alone))
    live = find_deployment(case.observation, rendered)
    if live is None:
        return Beside(alone, (), stamped(rendered), None, None)
    same = live.template == rendered["metadata"]["annotations"][ANNOTATION_TEMPLATE]
    return Beside(alone, (), live.child.body, live, live if same else None)


def _leave(case: Case, alone: Scheduled, live: ChildDeployment) -> Beside:
    scale = Scale(DEPLOYMENTS, case.observation.key.namespace, live.child, alone.granted)
    actions = (scale,) if live.wanted != alone.granted else ()
    return Beside(alone, actions, live.child.body, live, None)


def _marked(deployment: Object) -> Object:
    """The Deployment as one beside another; the mark alone changes when that goes."""
    metadata = deployment["metadata"]
    place = {**json.loads(metadata["annotations"][ANNOTATION_PLACEMENT]), BESIDE: True}
    text = json.dumps(place, separators=(",", ":"))
    annotations = {**metadata["annotations"], ANNOTATION_PLACEMENT: text}
    return {**deployment, "metadata": {**metadata, "annotations": annotations}}
