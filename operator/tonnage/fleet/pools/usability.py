"""Why nodes are no capacity for their pool now, in a few words, and which have lost capacity."""

from collections.abc import Sequence

from tonnage.api.pod import Toleration
from tonnage.fleet.devices.recognize import Unrecognised
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.fleet.model import Node
from tonnage.fleet.nodes.node_class import NodeClass
from tonnage.fleet.nodes.taints import first_untolerated
from tonnage.fleet.pools.shape import Shape


def why_unusable(node_class: NodeClass, shape: Shape) -> str | None:
    """Why the nodes are unusable whatever a pod tolerates, None when they are usable."""
    if isinstance(node_class.recognition, Unrecognised):
        return node_class.recognition.reason
    driver = dra_driver_of(shape.resource)
    if driver is not None and node_class.gpus == 0:
        return f"no ResourceSlice lists GPUs of it (is {driver.driver} running?)"
    if node_class.recognition is not None and node_class.recognition.unusable is not None:
        return node_class.recognition.unusable
    if node_class.gpus == 0:
        offers_no = f"offers no {shape.resource or 'GPUs'}"
        return f"{offers_no} (is the device plugin running?)"
    if bool(dra_driver_of(node_class.resource)) != bool(driver):
        return _why_other_allocation(node_class)
    if node_class.resource != shape.resource:
        return f"offers {node_class.resource}, other nodes of the pool {shape.resource}"
    if node_class.allocatable == 0:
        return f"none of its {node_class.gpus} GPUs is allocatable"
    return None


def _why_other_allocation(node_class: NodeClass) -> str:
    """Why a node is not used that offers its GPUs in another way than the pool's."""
    if dra_driver_of(node_class.resource):
        return "its GPUs are in ResourceSlices, and the pool uses those of the device plugin"
    return (
        f"offers {node_class.resource} of a device plugin, and the pool uses GPUs in ResourceSlices"
    )


def why_not_tolerated(node_class: NodeClass, tolerations: Sequence[Toleration]) -> str | None:
    """Name the taint that keeps away a pod with these tolerations, None when there is none."""
    taint = first_untolerated(node_class.taints, tolerations)
    if taint is None:
        return None
    return f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"


def has_lost_capacity(before: Node, now: Node) -> bool:
    """Whether replicas on the node, or to be scheduled on it, may have lost GPUs by the change."""
    return (
        (now.unusable is not None and now.unusable != before.unusable)
        or (now.silent and not before.silent)
        or not set(now.taints) <= set(before.taints)
        or any(now.allocatable.get(name, 0) < gpus for name, gpus in before.allocatable.items())
    )
