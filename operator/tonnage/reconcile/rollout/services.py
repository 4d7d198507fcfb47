"""The Services of one object: over all of its replicas, and over those of one placement each."""

from collections.abc import Iterator
from typing import Final

from tonnage.api.conditions import Reason
from tonnage.api.names import (
    ANNOTATION_ADAPTER_FACTS,
    ANNOTATION_INFERENCE_POOL,
    ANNOTATION_MODEL_FACTS,
)
from tonnage.api.parse import InvalidSpecError
from tonnage.checkpoint.kept_facts import encode_adapters
from tonnage.checkpoint.model import Checkpoint
from tonnage.kube.kinds import SERVICES
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import (
    Action,
    Delete,
    Stamped,
    apply_if_changed,
    stamped,
    with_annotations,
)
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.optional.inference_pool import requested_pool
from tonnage.reconcile.observation.optional.optional_child import OptionalChildError
from tonnage.reconcile.observation.optional.weights import commit_annotation
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.reconcile.scheduling.outcome import Scheduled
from tonnage.workloads.names import inference_pool_name
from tonnage.workloads.service import render_placement_service, render_service

_NO_OWNED_POOL: Final = (Reason.NAME_CONFLICT, Reason.KIND_MISSING)


def make_service(observation: Observation) -> Stamped:
    """The Service over the replicas of all placements, as it is applied."""
    service = _keep_facts(render_service(owner_of(observation)), observation)
    service = _keep_commit(service, observation)
    return stamped(_mark_service(service, observation))


def render_services(observation: Observation, placed: Scheduled) -> tuple[Stamped, ...]:
    """A Service for each placement, where there are several, as they are applied."""
    owner = owner_of(observation)
    options = [placed.option, *(share.option for share in placed.secondary)]
    if not placed.secondary:
        return ()
    return tuple(
        stamped(render_placement_service(owner, option.placement_name, option.parallelism.nodes))
        for option in options
    )


def sync_services(observation: Observation, wanted: tuple[Stamped, ...]) -> Iterator[Action]:
    """Make the Services of placements match the wanted ones."""
    live = {child.name: child for child in observation.placement_services}
    for service in wanted:
        yield from apply_if_changed(SERVICES, service, live.pop(service["metadata"]["name"], None))
    for child in live.values():
        yield Delete(SERVICES, child)


def _mark_service(service: Object, observation: Observation) -> Object:
    """Mark the Service while the spec asks for a pool, or one may still exist."""
    live = observation.inference_pool
    none_owned = isinstance(live, OptionalChildError) and live.reason in _NO_OWNED_POOL
    if requested_pool(observation.spec) is None and (live is None or none_owned):
        return service
    name = inference_pool_name(observation.key.name)
    return with_annotations(service, {ANNOTATION_INFERENCE_POOL: name})


def _keep_facts(service: Object, observation: Observation) -> Object:
    """Keep what the Hub said of the model and its adapters for a time when it does not answer."""
    model = observation.model
    facts = {
        ANNOTATION_MODEL_FACTS: model.kept_facts if isinstance(model, Checkpoint) else None,
        ANNOTATION_ADAPTER_FACTS: _encode_adapters(observation),
    }
    kept = {name: text for name, text in facts.items() if text is not None}
    return with_annotations(service, kept) if kept else service


def _encode_adapters(observation: Observation) -> str | None:
    spec = observation.spec
    if isinstance(spec, InvalidSpecError) or spec.lora is None or not observation.adapters:
        return None
    return encode_adapters(
        (hub, read.facts)
        for adapter, read in zip(spec.lora.adapters, observation.adapters, strict=True)
        if (hub := adapter.source.hugging_face) is not None and read.facts is not None
    )


def _keep_commit(service: Object, observation: Observation) -> Object:
    """Keep the commit that all replicas load from a claim or from the disks of nodes."""
    spec, model = observation.spec, observation.model
    if isinstance(spec, InvalidSpecError) or not spec.model.keeps_commit:
        return service
    commit = model.revision if isinstance(model, Checkpoint) else None
    return service if commit is None else with_annotations(service, commit_annotation(spec, commit))
