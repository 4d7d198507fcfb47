"""Plans objects one after the other, as the operator does, each in the remaining capacity."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.api.model import Adapter, Lora, ModelSource
from tonnage.api.names import (
    ANNOTATION_ADAPTER_FACTS,
    ANNOTATION_ADMITTED,
    ANNOTATION_MODEL_FACTS,
    ANNOTATION_POD_TEMPLATE,
    ANNOTATION_RENDERED,
    ANNOTATION_RENDERED_FROM,
)
from tonnage.api.parse import InvalidSpecError
from tonnage.checkpoint.lookup import HubLookup
from tonnage.cli.errors import InputError
from tonnage.cli.plan.restore_deployments import as_rendered, restore_deployments
from tonnage.cli.sources.declared import Declared
from tonnage.cli.sources.dump import Dump
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import FleetSnapshot
from tonnage.kube.kinds import (
    INFERENCE_DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
)
from tonnage.kube.protocol import ClusterReader, Object
from tonnage.reconcile.execute import find_name_conflict
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.model_source import read_adapters, read_model
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.download_jobs import ReadDownload, read_no_download
from tonnage.reconcile.observation.pods.starts import ReadStarts, read_no_starts
from tonnage.reconcile.observation.priority import UnknownPriorityClass, read_classes
from tonnage.reconcile.observation.volumes import VolumeReader
from tonnage.reconcile.observe import Sources, observe
from tonnage.reconcile.plan import Plan, plan_refusal
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.rebuild import group_by_owner, rebuild_state
from tonnage.reconcile.scheduling.context import Dependencies
from tonnage.reconcile.scheduling.migration_lock import MigrationLock
from tonnage.reconcile.scheduling.reservations import reserve_for

RECORDS: Final = (
    ANNOTATION_ADAPTER_FACTS,
    ANNOTATION_ADMITTED,
    ANNOTATION_MODEL_FACTS,
    ANNOTATION_POD_TEMPLATE,
    ANNOTATION_RENDERED_FROM,
)
"""Annotations of children that the operator keeps for itself; people cannot read most of them."""


@dataclass(frozen=True, slots=True)
class Planned:
    """One observed object and its plan."""

    key: Key
    observation: Observation
    plan: Plan

    @property
    def is_placed(self) -> bool:
        """Whether all wanted replicas have GPUs, or will have them once the plan is approved."""
        return any(
            condition.type == ConditionType.PLACED
            and (condition.status == "True" or condition.reason == Reason.AWAITING_APPROVAL)
            for condition in self.plan.status.conditions
        )

    @property
    def manifests(self) -> list[Object]:
        """The complete children, as the operator applies them.

        An object that no API server has stored yet has no uid. Its children then lack the owner
        reference, which is invalid with an empty uid, and the digest that covers it.
        """
        children = self.plan.children
        return [body if self.observation.uid else without_owner(body) for body in children]


async def observe_declared(
    declared: Iterable[Declared], dump: Dump, ask_hub: HubLookup
) -> list[Observation]:
    """Observe the objects in their order, without those that are being deleted: the operator
    ignores them.

    Raises InputError for a spec that the API server would refuse.
    """
    observations = []
    for one in declared:
        observation = await observe_in(dump, ask_hub, one.key)
        if observation is None:
            continue
        if isinstance(observation.spec, InvalidSpecError):
            raise InputError(f"{one.document.source}: {observation.spec}")
        observations.append(observation)
    return observations


async def observe_in(
    dump: Dump,
    ask_hub: HubLookup,
    key: Key,
    read_starts: ReadStarts = read_no_starts,
    read_download: ReadDownload = read_no_download,
) -> Observation | None:
    """Observe one object and its children; None if it does not exist or is being deleted."""
    classes = read_classes(dump.bodies(PRIORITY_CLASSES.kind))

    async def find_priority(name: str | None) -> int | UnknownPriorityClass:
        return classes.find(name)

    volumes = VolumeReader(dump, lambda: datetime.now(UTC))
    sources = Sources(
        dump,
        dump,
        lambda _: ask_hub,
        find_priority=find_priority,
        read_starts=read_starts,
        read_download=read_download,
        read_volumes=volumes.read,
        has_kind=lambda kind: kind in (POD_DISRUPTION_BUDGETS, *dump.group_kinds),
    )
    observation = await observe(sources, key)
    if observation is None or isinstance(observation.spec, InvalidSpecError):
        return observation
    # A claim that is in none of the files may exist nonetheless.
    weights = replace(observation.weights, is_claim_known=observation.weights.claim is not None)
    observation = await _read_model_as_user(
        replace(observation, weights=weights), observation.spec, dump, ask_hub
    )
    if observation.deployments:
        return observation
    return restore_deployments(observation, dump.owned(PODS, key))


async def plan_all(
    observations: Iterable[Observation],
    dump: Dump,
    fleet: FleetSnapshot,
    dependencies: Dependencies,
    now: datetime,
) -> list[Planned]:
    """Plan one object after the other; each reservation counts for the next ones."""
    observed = list(observations)
    shared = FleetState(Fleet.of(replace(fleet, reservations=()), dependencies.catalog))
    migration_lock = MigrationLock()
    planner = Planner(shared, migration_lock, dependencies)
    objects = dump.bodies(INFERENCE_DEPLOYMENTS.kind)
    classes = read_classes(dump.bodies(PRIORITY_CLASSES.kind))
    workloads = group_by_owner(dump.workloads())
    rebuild_state(shared, migration_lock, workloads, objects, classes)
    for observation in observed:
        reservations = (reserve_for(observation.key, one) for one in observation.deployments)
        shared.reserve(observation.key, reservations)
    return [await _plan(observation, planner, dump, now) for observation in observed]


async def _plan(observation: Observation, planner: Planner, dump: Dump, now: datetime) -> Planned:
    plan = planner.plan(observation, now)
    if any(not deployment.child.uid for deployment in observation.deployments):
        observation = as_rendered(observation, plan.children)
        plan = planner.plan(observation, now)
    conflict = await find_name_conflict(dump, observation, plan.actions)
    if conflict is not None:
        plan = planner.adopt(observation, plan_refusal(observation, conflict, now), now)
    return Planned(observation.key, observation, plan)


async def _read_model_as_user(
    observation: Observation,
    spec: InferenceDeploymentSpec,
    reader: ClusterReader,
    ask_hub: HubLookup,
) -> Observation:
    """The observation with a gated model and gated adapters, read with the user's own token.

    The Secrets that the spec names are in the cluster and must not be in a file.
    """
    namespace, source = observation.key.namespace, _without_secret(spec.model.source)
    if source != spec.model.source:
        model = await read_model(reader, ask_hub.model, namespace, source)
        observation = replace(observation, model=model)
    lora = _without_secrets(spec.lora)
    if lora != spec.lora:
        adapters = await read_adapters(reader, ask_hub.adapter, namespace, lora)
        observation = replace(observation, adapters=adapters)
    return observation


def _without_secrets(lora: Lora | None) -> Lora | None:
    if lora is None:
        return None
    return lora.model_copy(update={"adapters": [_without_token(one) for one in lora.adapters]})


def _without_token(adapter: Adapter) -> Adapter:
    hub = adapter.source.hugging_face
    if hub is None:
        return adapter
    hub = hub.model_copy(update={"token_secret_ref": None})
    source = adapter.source.model_copy(update={"hugging_face": hub})
    return adapter.model_copy(update={"source": source})


def _without_secret(source: ModelSource) -> ModelSource:
    if source.hugging_face is None:
        return source
    hub = source.hugging_face.model_copy(update={"token_secret_ref": None})
    return source.model_copy(update={"hugging_face": hub})


def without_owner(body: Object) -> Object:
    """A child without its owner reference, the digest that covers it, and records."""
    metadata: dict[str, Any] = {
        key: value for key, value in body["metadata"].items() if key != "ownerReferences"
    }
    unread = (ANNOTATION_RENDERED, *RECORDS)
    annotations = {
        key: value for key, value in metadata["annotations"].items() if key not in unread
    }
    if not annotations:
        del metadata["annotations"]
        return body | {"metadata": metadata}
    return body | {"metadata": metadata | {"annotations": annotations}}
