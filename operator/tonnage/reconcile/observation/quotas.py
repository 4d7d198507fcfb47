"""What the ResourceQuotas of a namespace leave to its objects of each kind of GPU.

The API server refuses a pod that would exceed a quota, so a pool whose GPUs a quota does not allow
carries no further replica.
"""

import re
from collections.abc import Iterable
from typing import Final

from tonnage.fleet.devices.resources import as_mapping
from tonnage.kube.protocol import Object
from tonnage.placement.quota import GpuQuota

_REQUESTS: Final = "requests."
_GPU: Final = re.compile(r"(?:amd|nvidia)\.com/[A-Za-z0-9._-]{1,63}")
_COUNT: Final = re.compile(r"[0-9]{1,12}")
_EVERY_POD: Final = frozenset({"NotTerminating", "NotBestEffort"})
"""Scopes that match every pod of a model: it requests CPU, and has no deadline."""


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
    scopes = spec.get("scopes") or []
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
