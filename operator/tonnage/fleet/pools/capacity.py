"""What is free on the nodes of a group, and how many pods it holds that request much."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tonnage.fit.model import Footprint
from tonnage.fleet.alignment import Split
from tonnage.fleet.occupancy import PodsPerNode, Successor, Waiting, pack, pack_nodes
from tonnage.fleet.pools.description import Reasons
from tonnage.fleet.pools.group import Member
from tonnage.fleet.resources import NOTHING, Resources

_Free = tuple[int, Resources]
"""Free GPUs of a node, and what it has at least for each of them."""


@dataclass(frozen=True, slots=True)
class Demands:
    """Replicas to be scheduled on a group: `waiting` ones, and `successors` of existing pods.
    `excluded_gpus` are held by pods that do not count, by node, and `excluded_others` is what these
    request besides; `splits` are the free GPUs of these nodes without them."""

    waiting: Waiting = ()
    successors: Sequence[Successor] = ()
    excluded_gpus: Mapping[str, int] = field(default_factory=dict)
    excluded_others: Mapping[str, Resources] = field(default_factory=dict)
    splits: Mapping[str, Split] = field(default_factory=dict)

    def free(self, name: str, member: Member) -> int:
        """Allocatable GPUs of the node that no pod which counts holds."""
        used = member.used - self.excluded_gpus.get(name, 0)
        return max(0, member.node_class.allocatable - used)

    def split(self, name: str, member: Member) -> Split:
        """Free GPUs of the node by what those of aligned pods share."""
        return self.splits.get(name, member.split)

    def spare(self, name: str, member: Member) -> Resources:
        """CPU, memory and storage of the node that no pod with GPUs which counts requests."""
        excluded = self.excluded_others.get(name, NOTHING)
        return member.size.minus(member.requested.minus(excluded))

    def spare_per_gpu(self, name: str, member: Member) -> Resources | None:
        """The spare part of each free GPU, rounded; None on a node that takes no pod."""
        if name not in self.excluded_gpus:
            return member.spare_per_gpu
        free = self.free(name, member)
        return self.spare(name, member).for_each(free) if free and not member.unusable else None


class CapacityCounter:
    """Counts pods that request more besides GPUs than each node has for its free GPUs.

    It reads all nodes at the first count. Waiting replicas are packed onto nodes that have enough,
    then onto the others: what they request besides GPUs is not known.
    """

    def __init__(self, members: Mapping[str, Member], reasons: Reasons, demands: Demands) -> None:
        self._members: Final = members
        self._reasons: Final = reasons
        self._demands: Final = demands
        self._nodes: dict[_Free, list[str]] | None = None

    def count(self, footprint: Footprint, others: Resources) -> PodsPerNode:
        """Count pods of replicas of this footprint, with these other requests, that can start."""
        per_gpu = Resources(*(-(-amount // footprint.gpus_per_node) for amount in others))
        enough: Counter[int] = Counter()
        scarce: dict[str, int] = {}
        for (free, spare), names in self._read().items():
            if spare.covers(per_gpu):
                enough[free] += len(names)
            else:
                scarce.update(dict.fromkeys(names, free))
        packed = pack(enough, self._demands.waiting)
        if packed.unplaced:
            scarce = pack_nodes(scarce, packed.unplaced).left
        pods: Counter[int] = Counter()
        for free, nodes in packed.left.items():
            pods[footprint.pods_on(free)] += nodes
        for name, free in scarce.items():
            spare = self._demands.spare(name, self._members[name])
            pods[spare.fitting(others, footprint.pods_on(free))] += 1
        return pods

    def _read(self) -> Mapping[_Free, list[str]]:
        """Return the names of the usable nodes with free GPUs, by what is free on them."""
        if self._nodes is None:
            self._nodes = {}
            for name, member in self._members.items():
                spare = self._demands.spare_per_gpu(name, member)
                if spare is not None and self._reasons[member.node_class] is None:
                    free = self._demands.free(name, member)
                    self._nodes.setdefault((free, spare), []).append(name)
        return self._nodes
