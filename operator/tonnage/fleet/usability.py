"""Why nodes are no capacity for their pool now, in a few words, and which are less than before."""

from collections.abc import Sequence

from tonnage.api.pod import Toleration
from tonnage.fleet.model import Node
from tonnage.fleet.node_class import NodeClass
from tonnage.fleet.recognise import Unrecognised
from tonnage.fleet.shape import Shape
from tonnage.fleet.taints import first_untolerated


def why_unusable(kind: NodeClass, shape: Shape) -> str | None:
    """What speaks against the nodes whatever a pod tolerates, None when nothing does."""
    if isinstance(kind.recognition, Unrecognised):
        return kind.recognition.reason
    if kind.recognition is not None and kind.recognition.unusable is not None:
        return kind.recognition.unusable
    if kind.gpus == 0:
        return "offers no GPUs (is the device plugin running?)"
    if kind.resource != shape.resource:
        return f"offers {kind.resource}, other nodes of the pool {shape.resource}"
    if kind.allocatable == 0:
        return f"none of its {kind.gpus} GPUs is allocatable"
    return None


def why_not_tolerated(kind: NodeClass, tolerations: Sequence[Toleration]) -> str | None:
    """The taint that keeps a pod with these tolerations away, None when there is none."""
    taint = first_untolerated(kind.taints, tolerations)
    if taint is None:
        return None
    return f"taint {taint.key}={taint.value}:{taint.effect} is not tolerated"


def is_less(before: Node, now: Node) -> bool:
    """Whether replicas that are on the node, or are to come to it, may have lost by the change."""
    return (
        (now.unusable is not None and now.unusable != before.unusable)
        or (now.silent and not before.silent)
        or not set(now.taints) <= set(before.taints)
        or any(now.allocatable.get(name, 0) < gpus for name, gpus in before.allocatable.items())
    )
