"""Renders the ResourceClaimTemplate of a placement, from which each of its pods gets a claim."""

from functools import lru_cache
from typing import Any, Final

from tonnage.api.names import LABEL_CONTEXT
from tonnage.api.shard import Shard
from tonnage.api.text import digest
from tonnage.api.workload import Context
from tonnage.engines.inputs import Owner
from tonnage.fleet.devices.resources import as_mapping, as_sequence, read_count
from tonnage.fleet.model import ClaimRequest
from tonnage.kube.kinds import RESOURCE_CLAIM_TEMPLATES
from tonnage.placement.model import Option
from tonnage.workloads.metadata import owner_reference, placement_labels
from tonnage.workloads.names import claim_template_name

CLAIM: Final = "gpus"
"""Name of the claim in the pod, and of its request."""

Json = dict[str, Any]


def render_claim_template(owner: Owner, option: Option) -> Json | None:
    """The ResourceClaimTemplate of the placement; None where its pods claim no devices."""
    request = option.pool.claim
    if request is None:
        return None
    return render_claims(owner, option.placement_name, request, _count_devices(option))


def render_claims(owner: Owner, placement: str, request: ClaimRequest, devices: int) -> Json:
    """The ResourceClaimTemplate of a placement whose pods claim so many devices each.

    Its spec is immutable, so its name ends in a digest of the spec.
    """
    labels = placement_labels(owner, placement)
    return {
        "apiVersion": f"{RESOURCE_CLAIM_TEMPLATES.group}/{RESOURCE_CLAIM_TEMPLATES.version}",
        "kind": RESOURCE_CLAIM_TEMPLATES.kind,
        "metadata": {
            "name": _name_of(owner, placement, request, devices),
            "namespace": owner.namespace,
            "labels": labels,
            "ownerReferences": [owner_reference(owner)],
        },
        "spec": {
            "metadata": {"labels": dict(labels)},
            "spec": _claim_spec(request, devices),
        },
    }


def claim_template_of(owner: Owner, option: Option) -> str | None:
    """The name of the ResourceClaimTemplate of the placement; None where it has none."""
    request = option.pool.claim
    if request is None:
        return None
    return _name_of(owner, option.placement_name, request, _count_devices(option))


def claimed_devices(body: Json) -> int:
    """The devices that one claim of a ResourceClaimTemplate requests."""
    devices = as_mapping(as_mapping(as_mapping(body.get("spec")).get("spec")).get("devices"))
    exactly = (
        as_mapping(as_mapping(request).get("exactly"))
        for request in as_sequence(devices.get("requests"))
    )
    return sum(read_count(each.get("count")) or 0 for each in exactly)


def claim_template_names(template: Json) -> frozenset[str]:
    """The ResourceClaimTemplates that a pod, or a template of pods, names."""
    claims = map(as_mapping, as_sequence(as_mapping(template.get("spec")).get("resourceClaims")))
    names = (claim.get("resourceClaimTemplateName") for claim in claims)
    return frozenset(name for name in names if isinstance(name, str))


def _name_of(owner: Owner, placement: str, request: ClaimRequest, devices: int) -> str:
    spec_digest = _claim_digest(request, devices, owner.shard, owner.context)
    return claim_template_name(owner.name, placement, spec_digest)


def _count_devices(option: Option) -> int:
    return option.parallelism.footprint.gpus_per_node


@lru_cache(maxsize=1024)
def _claim_digest(request: ClaimRequest, count: int, shard: Shard, context: Context | None) -> str:
    """The digest of the spec, which is the same for all placements of a pool with so many devices
    a pod. It includes those labels of the claims that a user may change: they are in the immutable
    spec as well."""
    spec = _claim_spec(request, count)
    labels = {**shard.own_labels, **({LABEL_CONTEXT: context.value} if context else {})}
    return digest({"labels": labels, "spec": spec} if labels else spec)


def _claim_spec(request: ClaimRequest, count: int) -> Json:
    devices: Json = {
        "requests": [
            {
                "name": CLAIM,
                "exactly": {
                    "deviceClassName": request.device_class,
                    "allocationMode": "ExactCount",
                    "count": count,
                    "selectors": [{"cel": {"expression": each}} for each in request.selectors],
                },
            }
        ]
    }
    if request.aligned_by is not None and 1 < count <= request.most_aligned:
        constraint = {"requests": [CLAIM], "matchAttribute": request.aligned_by}
        devices["constraints"] = [constraint]
    return {"devices": devices}
