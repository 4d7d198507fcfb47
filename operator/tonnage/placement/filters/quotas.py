"""Limits options to the GPUs that a ResourceQuota of the namespace leaves.

Only pools on which the object does not run yet are limited. Its replicas stay where they run,
whatever a quota says later, and a pod in excess of the quota is refused and reported.
"""

from collections.abc import Mapping
from dataclasses import replace

from tonnage.fit.messages import format_count
from tonnage.placement.messages import format_fit
from tonnage.placement.model import Option, Rejection
from tonnage.placement.namespace import GpuQuota
from tonnage.placement.reasons import RejectedReason


def limit_to_quota(option: Option, quotas: Mapping[str, GpuQuota]) -> Option | Rejection:
    """The option with the capacity that the quota of its GPUs leaves; a rejection where it leaves
    none."""
    quota = quotas.get(option.pool.resource)
    if quota is None or option.replicas == 0:
        return option
    allowed = quota.left // option.parallelism.gpus
    if allowed >= min(option.replicas, option.grown_capacity):
        return option
    gpus = format_count(option.parallelism.gpus, "GPU")
    message = f"{quota}, and a replica requests {gpus}; raise the quota"
    if allowed == 0:
        message = f"{format_fit(option)}, but {message}"
        return Rejection(RejectedReason.QUOTA_EXCEEDED, message, option=option)
    return replace(
        option,
        capacity=min(option.capacity, allowed),
        grown_capacity=min(option.grown_capacity, allowed),
        notes=(*option.notes, message),
    )
