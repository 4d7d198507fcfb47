"""The release of the engine that the replicas of an object keep, where the spec names none.

The release belongs to the placement. A later operator has another default, and takes it only where
the user changes what is rendered into pods, or asks for it (`rollout.upgradedAt`).
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from tonnage.api.conditions import ConditionType, Reason
from tonnage.api.parse import InvalidSpecError
from tonnage.catalog.catalog import Catalog
from tonnage.engines.registry import engine_for
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.observation.plan_terms import is_running, read_last_ready
from tonnage.reconcile.observation.serving import newest

_RELEASE_TAG: Final = re.compile(r"[^@\s]{1,512}:v([0-9]{1,4}(?:\.[0-9]{1,4}){2})[^/@\s]{0,64}")
"""An image that is tagged as engines tag their own."""


_PLACED: Final = (Reason.POOL_CHOSEN, Reason.INSUFFICIENT_GPUS, Reason.SCALED_TO_ZERO)
_RUNS_AN_EARLIER_SPEC: Final = (Reason.AWAITING_APPROVAL, Reason.ROLLOUT_PAUSED)
"""Reasons of condition Ready."""


def kept_release(observation: Observation) -> str | None:
    """The release that the replicas run with and keep; None where the spec or the catalogue
    decides."""
    spec, current = observation.spec, newest(observation.deployments)
    if isinstance(spec, InvalidSpecError) or current is None:
        return None
    spec = spec.with_engine(current.engine)
    if spec.engine.settings.version:
        return None
    recorded = current.record
    if recorded is not None:
        is_same = recorded.source.spec == observation.pod_spec_digest(current.engine)
        return recorded.source.release if is_same else None
    if spec.engine.settings.image or not is_unchanged_since_report(observation, current):
        return None
    return _read_image_tag(current.pod_template)


def keep_release(observation: Observation, catalog: Catalog) -> Catalog:
    """The catalogue by which the replicas keep their release."""
    spec, current = observation.spec, newest(observation.deployments)
    if isinstance(spec, InvalidSpecError):
        return catalog
    if current is not None:
        spec = spec.with_engine(current.engine)
    return engine_for(spec).keep_release(kept_release(observation), catalog)


def is_unchanged_since_report(observation: Observation, live: ChildDeployment) -> bool:
    """Whether a Deployment without a record of its template runs by the spec as it is: an older
    operator has reported on this very spec, and no other client has edited the Deployment since."""
    status = observation.previous_status
    if status.get("observedGeneration") != observation.generation or not _is_carried_out(status):
        return False
    # Condition Ready does not say it where no replica is wanted.
    if any(one.reason == Reason.ROLLED_BACK for one in observation.reported_placements):
        return False
    if not observation.is_choice(live.placement_digest):
        return False
    last = read_last_ready(status)
    return last is None or last.template != live.template or is_running(last, live)


def _is_carried_out(status: Mapping[str, Any]) -> bool:
    """Whether the reported spec runs, and not what an earlier one led to."""
    reasons = {one.get("type"): one.get("reason") for one in status.get("conditions") or []}
    placed, ready = reasons.get(ConditionType.PLACED), reasons.get(ConditionType.READY)
    return placed in _PLACED and ready not in _RUNS_AN_EARLIER_SPEC


def was_placed(observation: Observation) -> bool:
    """Whether the operator has reported all replicas of this very spec as placed."""
    status = observation.previous_status
    return status.get("observedGeneration") == observation.generation and any(
        one.get("type") == ConditionType.PLACED and one.get("status") == "True"
        for one in status.get("conditions") or []
    )


def _read_image_tag(template: Object) -> str | None:
    """The release in the tag of the image; None where the tag names none."""
    containers = template["spec"].get("containers") or []
    match = _RELEASE_TAG.fullmatch(containers[0].get("image", "")) if containers else None
    return match[1] if match else None
