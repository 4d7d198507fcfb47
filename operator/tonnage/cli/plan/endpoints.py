"""Derives the endpoints for long requests of the objects in files, as the operator does."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from tonnage.api.inference import InferenceDeploymentSpec
from tonnage.checkpoint.lookup import HubLookup
from tonnage.cli.plan.planning import observe_in
from tonnage.cli.sources.documents import Document
from tonnage.cli.sources.dump import Dump
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object
from tonnage.reconcile.actions import apply_if_changed, stamped
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import Child, is_controlled_by
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.scheduling.context import owner_of
from tonnage.workloads.long_endpoint import render_long_endpoint
from tonnage.workloads.names import long_endpoint_name

_SOURCE: Final = "the endpoint for long requests"
"""Names the source in messages, in place of a file name."""

_USER_FIELDS: Final = ("approvedPlan", "replicas")
"""Fields of an endpoint's spec that users write and the operator does not apply."""


async def observe_endpoints(
    observations: Iterable[Observation], dump: Dump, ask_hub: HubLookup, now: datetime
) -> list[Observation]:
    """The observations, each followed by that of its endpoint for long requests as the operator
    would apply it to the dump now. An endpoint whose name is taken is left out."""
    observed = []
    for observation in observations:
        observed.append(observation)
        declared, live = observation.declared, observation.long_endpoint
        if declared is None or not _is_name_free(observation, live):
            continue
        _apply(observation, declared, live, dump, now)
        key = Key(observation.key.namespace, long_endpoint_name(observation.key.name))
        endpoint = await observe_in(dump, ask_hub, key)
        if endpoint is not None:
            observed.append(endpoint)
    return observed


def _is_name_free(observation: Observation, live: Child | None) -> bool:
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
    dump.apply(Document(_SOURCE, rendered | {"spec": _user_fields(live) | rendered["spec"]}), now)


def _user_fields(live: Child | None) -> Object:
    """The fields that users wrote, which the apply keeps."""
    spec = live.body.get("spec") or {} if live else {}
    return {field: spec[field] for field in _USER_FIELDS if field in spec}
