"""What the ResourceQuotas, the LimitRanges and the labels of a namespace allow its pods.

The API server refuses a pod that exceeds them, so a pool on which pods would exceed them carries no
further replica. The input may be hostile: what cannot be read does not limit.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from tonnage.fleet.devices.resources import as_mapping, as_sequence
from tonnage.fleet.nodes.amounts import read_all_amounts
from tonnage.kube.protocol import Object
from tonnage.placement.namespace import GpuQuota, LimitRangeItem, LimitType, PodSecurityLevel

_REQUESTS: Final = "requests."
_GPU: Final = re.compile(r"(?:amd|nvidia)\.com/[A-Za-z0-9._-]{1,63}")
_COUNT: Final = re.compile(r"[0-9]{1,12}")
_EVERY_POD: Final = frozenset({"NotTerminating", "NotBestEffort"})
"""Scopes that match every pod of a model: it requests CPU, and has no deadline."""

_ENFORCE: Final = "pod-security.kubernetes.io/enforce"


def read_quotas(bodies: Iterable[Object]) -> tuple[GpuQuota, ...]:
    """The quotas of GPUs, by resource the one that leaves the fewest, in the order of resources.

    A quota for some pods only (a PriorityClass, a scope) is not counted, and so is one without a
    status: the quota controller has not counted yet.
    """
    fewest: dict[str, GpuQuota] = {}
    for body in bodies:
        for quota in _read_quota(body):
            known = fewest.get(quota.resource)
            if known is None or (quota.left, quota.name) < (known.left, known.name):
                fewest[quota.resource] = quota
    return tuple(fewest[resource] for resource in sorted(fewest))


def _read_quota(body: Object) -> Iterable[GpuQuota]:
    spec, status = as_mapping(body.get("spec")), as_mapping(body.get("status"))
    scopes = map(str, as_sequence(spec.get("scopes")))
    if spec.get("scopeSelector") or not _EVERY_POD.issuperset(scopes):
        return
    hard, used = as_mapping(status.get("hard")), as_mapping(status.get("used"))
    for key, limit in hard.items():
        resource = key.removeprefix(_REQUESTS)
        if resource == key or not _GPU.fullmatch(resource):
            continue
        counts = [str(limit), str(used.get(key, "0"))]
        if all(_COUNT.fullmatch(count) for count in counts):
            most, in_use = map(int, counts)
            yield GpuQuota(str(body["metadata"]["name"]), resource, most, in_use)


def read_limit_ranges(bodies: Iterable[Object]) -> tuple[LimitRangeItem, ...]:
    """The items of the LimitRanges of a namespace that concern pods, by name of the LimitRange."""
    return tuple(
        item
        for body in sorted(bodies, key=lambda body: str(body["metadata"]["name"]))
        for raw in as_sequence(as_mapping(body.get("spec")).get("limits"))
        for item in _read_item(str(body["metadata"]["name"]), as_mapping(raw))
    )


def _read_item(name: str, raw: Mapping[str, Any]) -> Iterable[LimitRangeItem]:
    if raw.get("type") in list(LimitType):
        yield LimitRangeItem(
            name,
            LimitType(raw["type"]),
            min=read_all_amounts(raw.get("min")),
            max=read_all_amounts(raw.get("max")),
            default=read_all_amounts(raw.get("default")),
            default_request=read_all_amounts(raw.get("defaultRequest")),
            max_limit_request_ratio=read_all_amounts(
                raw.get("maxLimitRequestRatio"), in_thousandths=True
            ),
        )


def read_pod_security(namespace: Object | None) -> PodSecurityLevel:
    """The standard that a Namespace enforces; a Namespace without the label enforces that of the
    API server's configuration, which is not known and by default `privileged`."""
    labels = as_mapping(as_mapping((namespace or {}).get("metadata")).get("labels"))
    level = labels.get(_ENFORCE)
    if level is None:
        return PodSecurityLevel.PRIVILEGED
    # The API server takes an unknown level as restricted.
    known = level in list(PodSecurityLevel)
    return PodSecurityLevel(level) if known else PodSecurityLevel.RESTRICTED
