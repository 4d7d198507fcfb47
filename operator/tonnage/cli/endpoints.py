"""The endpoints for long requests of the objects in files, as the operator would make them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.cli.documents import Document
from tonnage.cli.dump import Dump
from tonnage.cli.planning import observe_in
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import apply_if_changed, stamped
from tonnage.reconcile.children import Child, is_controlled_by
from tonnage.reconcile.context import owner_of
from tonnage.reconcile.key import Key
from tonnage.reconcile.model_source import HubLookup
from tonnage.reconcile.observe import Observation
from tonnage.render.long_endpoint import render_long_endpoint
from tonnage.render.names import long_endpoint_name

_SOURCE: Final = "the endpoint for long requests"
"""What stands in messages where for a file its name does."""

_BESIDE: Final = ("approvedPlan", "replicas")
"""Fields that people write beside those that the operator applies."""


async def observe_endpoints(
    observations: Iterable[Observation], dump: Dump, ask_hub: HubLookup, now: datetime
) -> list[Observation]:
    """The observations, each followed by that of its endpoint for long requests as the operator
    would apply it to the dump now. An object whose name for it is taken has none."""
    found = []
    for observation in observations:
        found.append(observation)
        declared, live = observation.declared, observation.long_endpoint
        if declared is None or not _is_free(observation, live):
            continue
        _apply(observation, declared, live, dump, now)
        key = Key(observation.key.namespace, long_endpoint_name(observation.key.name))
        endpoint = await observe_in(dump, ask_hub, key)
        if endpoint is not None:
            found.append(endpoint)
    return found


def _is_free(observation: Observation, live: Child | None) -> bool:
    return live is None or is_controlled_by(live.body, observation.uid)


def _apply(
    observation: Observation,
    declared: InferenceDeploymentSpec,
    live: Child | None,
    dump: Dump,
    now: datetime,
) -> None:
    rendered = render_long_endpoint(owner_of(observation), declared)
    if not apply_if_changed(INFERENCE_DEPLOYMENTS, stamped(rendered), live):
        return
    dump.apply(Document(_SOURCE, rendered | {"spec": _beside(live) | rendered["spec"]}), now)


def _beside(live: Child | None) -> Object:
    """What people have written that stays as it is."""
    spec = live.body.get("spec") or {} if live else {}
    return {field: spec[field] for field in _BESIDE if field in spec}
