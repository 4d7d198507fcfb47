"""Read why kube-scheduler finds no node for a pod, from its message.

`0/5 nodes are available: 1 Insufficient cpu, 4 Insufficient amd.com/gpu. preemption: ...`: of each
node the reasons of the first filter that it does not pass, counted over all nodes. Source:
kubernetes pkg/scheduler/framework/types.go (FitError.Error). Without numbers it is the message of a
plugin that looked at no node, such as one about a claim.
"""

import re
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.dra_drivers import load_dra_drivers
from tonnage.fleet.devices.resources import dra_driver_of

_HEAD: Final = re.compile(r"[0-9]{1,9}/[0-9]{1,9} nodes are available: ")
_END: Final = re.compile(r"\.(?: |$)")
_REASON: Final = re.compile(r"([0-9]{1,9}) (.+)", re.DOTALL)

_OF_UNUSABLE_NODES: Final = (
    "node(s) were unschedulable",
    "node(s) had untolerated taint",
    "node(s) had taints",
    "node(s) didn't match Pod's node affinity/selector",
)
"""How the reasons begin of nodes that the operator does not count as usable nodes of the pool."""


_NO_DEVICES: Final = "cannot allocate all claims"
"""A node whose devices do not suffice for the claims of the pod (plugin dynamicresources)."""

_EVERY_NODE: Final = 2**31


@dataclass(frozen=True, slots=True)
class SchedulerVerdict:
    """Why no node fits: how many nodes lack GPUs, and how many the one other thing that most nodes
    lack, among what the operator does not count."""

    lacking_gpus: int
    lacking_more: int


def read_verdict(message: str, resource: str) -> SchedulerVerdict:
    """Read the message; `resource` is that of the GPUs. Of another scheduler's message only counts
    whether it names them."""
    is_claimed = dra_driver_of(resource) is not None
    shortage = _NO_DEVICES if is_claimed else f"Insufficient {resource}"
    head = _HEAD.match(message)
    if head is None and resource in message:
        return SchedulerVerdict(_EVERY_NODE, 0)
    rest = message[head.end() :] if head else message
    end = _END.search(rest)
    reasons = _read_reasons(rest[: end.start()] if end else rest)
    if head is None or not reasons:
        return SchedulerVerdict(0, _EVERY_NODE)
    return SchedulerVerdict(
        sum(count for count, reason in reasons if reason == shortage),
        max(
            (
                count
                for count, reason in reasons
                if reason != shortage and not reason.startswith(_OF_UNUSABLE_NODES)
            ),
            default=0,
        ),
    )


def explain_unclaimed(message: str) -> str | None:
    """Why the scheduler finds an extended resource of a DeviceClass on no node; None where that is
    not what it says. Once it turns the resource into claims, it says that it cannot allocate them.
    """
    for resource, driver in load_dra_drivers().by_resource.items():
        if f"Insufficient {resource}" in message:
            return (
                f"the scheduler turns {resource} into claims only where DeviceClass "
                f"{driver.device_class} exists and feature gate DRAExtendedResource is on; set it "
                "on all components of the control plane, or set spec.allocation of the "
                "AcceleratorPool to ResourceClaim"
            )
    return None


def _read_reasons(text: str) -> list[tuple[int, str]]:
    """The reasons with their numbers of nodes. What follows a comma inside a reason is left out."""
    matches = [_REASON.fullmatch(part) for part in text.split(", ")]
    return [(int(match[1]), match[2]) for match in matches if match]
