"""Planning objects one after the other, as the operator does, each in what the others left."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec, ModelSource
from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.api.parse import InvalidSpecError
from tonnage.cli.declared import Declared
from tonnage.cli.dump import Dump
from tonnage.cli.errors import InputError
from tonnage.cli.restored import as_rendered, restore_deployments
from tonnage.cli.shared_fleet import DumpedFleet
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import FleetSnapshot
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PODS, PRIORITY_CLASSES
from tonnage.kube.protocol import ClusterReader, Object
from tonnage.reconcile.context import Dependencies
from tonnage.reconcile.execute import find_name_conflict
from tonnage.reconcile.key import Key
from tonnage.reconcile.ledger import reserve_for
from tonnage.reconcile.model_source import HubLookup, read_model
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import Observation, Sources, observe
from tonnage.reconcile.plan import Plan, plan_refusal
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.priority import UnknownPriorityClass, read_classes


@dataclass(frozen=True, slots=True)
class Planned:
    """One object as it is, and its plan."""

    key: Key
    observation: Observation
    plan: Plan

    @property
    def is_placed(self) -> bool:
        """Whether every replica that is wanted has GPUs, or has them once its plan is approved."""
        return any(
            found.type == ConditionType.PLACED
            and (found.status == "True" or found.reason == Reason.AWAITING_APPROVAL)
            for found in self.plan.status.conditions
        )

    @property
    def manifests(self) -> list[Object]:
        """The children complete, as the operator applies them.

        An object that no API server has stored yet has no uid. Its children then stand without the
        reference to their owner, which nothing would accept with an empty uid, and without the
        digest over it.
        """
        children = self.plan.children
        return [body if self.observation.uid else unowned(body) for body in children]


async def observe_declared(
    declared: Iterable[Declared], dump: Dump, ask_hub: HubLookup
) -> list[Observation]:
    """The objects in their order, with what exists of them. One that is being deleted is left out:
    the operator leaves it alone.

    Raises InputError for a spec that the API server would refuse.
    """
    found = []
    for one in declared:
        observation = await observe_in(dump, ask_hub, one.key)
        if observation is None:
            continue
        if isinstance(observation.spec, InvalidSpecError):
            raise InputError(f"{one.document.source}: {observation.spec}")
        found.append(observation)
    return found


async def observe_in(dump: Dump, ask_hub: HubLookup, key: Key) -> Observation | None:
    """One object with what exists of it; None where it is not there, or is being deleted."""
    classes = read_classes(dump.bodies(PRIORITY_CLASSES.kind))

    async def find_priority(name: str | None) -> int | UnknownPriorityClass:
        return classes.find(name)

    sources = Sources(dump, dump, lambda _: ask_hub, find_priority=find_priority)
    observation = await observe(sources, key)
    if observation is None or isinstance(observation.spec, InvalidSpecError):
        return observation
    observation = await _read_as_asker(observation, observation.spec, dump, ask_hub)
    if observation.deployments:
        return observation
    return restore_deployments(observation, dump.owned(PODS, key))


async def plan_all(
    observations: Iterable[Observation],
    dump: Dump,
    fleet: FleetSnapshot,
    world: Dependencies,
    now: datetime,
) -> list[Planned]:
    """Plan one object after the other; what one is promised is taken for the next."""
    found = list(observations)
    shared = DumpedFleet(Fleet.of(replace(fleet, reservations=()), world.catalog))
    planner = Planner(shared, Moves(), world, wake=_nobody)
    objects = dump.bodies(INFERENCE_DEPLOYMENTS.kind)
    classes = read_classes(dump.bodies(PRIORITY_CLASSES.kind))
    planner.prime(dump.bodies(DEPLOYMENTS.kind), objects, classes)
    for observation in found:
        held = (reserve_for(observation.owner, one) for one in observation.deployments)
        shared.reserve(observation.key, held)
    return [await _plan(observation, planner, dump, now) for observation in found]


async def _plan(observation: Observation, planner: Planner, dump: Dump, now: datetime) -> Planned:
    plan = planner.plan(observation, now)
    if any(not found.child.uid for found in observation.deployments):
        observation = as_rendered(observation, plan.children)
        plan = planner.plan(observation, now)
    refused = await find_name_conflict(dump, observation, plan.actions)
    if refused is not None:
        plan = planner.adopt(observation, plan_refusal(observation, refused, now), now)
    return Planned(observation.key, observation, plan)


def _nobody(key: Key) -> None:
    """In a dump nobody is woken: every object is planned once."""


async def _read_as_asker(
    observation: Observation,
    spec: InferenceDeploymentSpec,
    reader: ClusterReader,
    ask_hub: HubLookup,
) -> Observation:
    """The observation with a gated model read with the token of the person who asks.

    The Secret that the spec names is in the cluster, and has no place in a file.
    """
    source = _without_secret(spec.model.source)
    if source == spec.model.source:
        return observation
    model = await read_model(reader, ask_hub, observation.key.namespace, source)
    return replace(observation, model=model)


def _without_secret(source: ModelSource) -> ModelSource:
    if source.hugging_face is None:
        return source
    hub = source.hugging_face.model_copy(update={"token_secret_ref": None})
    return source.model_copy(update={"hugging_face": hub})


def unowned(body: Object) -> Object:
    """A child without the reference to its owner and the digest over it."""
    metadata: dict[str, Any] = {
        key: value for key, value in body["metadata"].items() if key != "ownerReferences"
    }
    annotations = {
        key: value for key, value in metadata["annotations"].items() if key != ANNOTATION_RENDERED
    }
    if not annotations:
        del metadata["annotations"]
        return body | {"metadata": metadata}
    return body | {"metadata": metadata | {"annotations": annotations}}
