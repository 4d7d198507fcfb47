"""Limits options to what the ResourceQuotas of the namespace leave.

Only pools on which the object does not run yet are limited. Its replicas stay where they run,
whatever a quota says later, and a pod in excess of the quota is refused and reported.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tonnage.placement.messages import format_fit
from tonnage.placement.model import Option, Rejection
from tonnage.placement.namespace import Quota
from tonnage.placement.reasons import RejectedReason


def limit_to_quotas(
    option: Option, quotas: Sequence[Quota], usage: Mapping[str, int]
) -> Option | Rejection:
    """The option with the capacity that the quotas leave; a rejection where they leave none.
    `usage` is what a replica uses, by the keys of quotas."""
    limiting = [(quota.left // usage[quota.key], quota) for quota in quotas if usage.get(quota.key)]
    if not limiting or option.replicas == 0:
        return option
    allowed, quota = min(limiting, key=lambda each: each[0])
    if allowed >= min(option.replicas, option.grown_capacity):
        return option
    message = quota.explain(usage[quota.key])
    if allowed == 0:
        message = f"{format_fit(option)}, but {message}"
        return Rejection(RejectedReason.QUOTA_EXCEEDED, message, option=option)
    return replace(
        option,
        capacity=min(option.capacity, allowed),
        grown_capacity=min(option.grown_capacity, allowed),
        notes=(*option.notes, message),
    )
