"""Free GPUs of nodes by what the GPUs of an aligned pod share: a NUMA node or a PCIe root complex.

An aligned pod has all of its GPUs in one of these parts of a node, where any node of the pool has a
part as large as the pod needs. Pods of one GPU, and larger ones, take any GPUs of a node. The
scheduler decides which: those of replicas that are not scheduled yet are assumed in the smallest
part that is enough, otherwise in the smallest ones.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.fit.model import Footprint
from tonnage.fleet.occupancy import Waiting

Split = tuple[int, ...]
"""Free GPUs of a node in each of its parts, the smallest first; without parts that have none."""


Splits = tuple[tuple[Split, int], ...]
"""Numbers of nodes by their free GPUs."""


def as_splits(nodes: Mapping[Split, int]) -> Splits:
    """Return numbers of nodes in order, without nodes that have no free GPU."""
    return tuple(sorted((split, count) for split, count in nodes.items() if split and count))


def split_of(free: Mapping[object, int]) -> Split:
    """The free GPUs by what they share."""
    return tuple(sorted(count for count in free.values() if count))


@dataclass(frozen=True, slots=True)
class Alignment:
    """How GPUs of a pool's pods are aligned: by the values of an attribute of devices, of which one
    has at most `most` GPUs on any node."""

    attribute: str
    most: int

    def applies_to(self, footprint: Footprint) -> bool:
        """Whether the GPUs of such a pod have to be in one part of a node."""
        return 1 < footprint.gpus_per_node <= self.most

    def pods_on(self, split: Split, footprint: Footprint) -> int:
        """Pods of the footprint that can start on a node with these free GPUs."""
        gpus = footprint.gpus_per_node
        if not self.applies_to(footprint):
            return sum(split) // gpus
        return sum(free // gpus for free in split)

    def pods_on_empty(self, gpus: int, footprint: Footprint) -> int:
        """Pods of the footprint that can start on a node to come with so many GPUs."""
        if not self.applies_to(footprint):
            return gpus // footprint.gpus_per_node
        whole, rest = divmod(gpus, self.most)
        return self.pods_on((rest, *[self.most] * whole), footprint)

    def pack(self, splits: Splits, waiting: Waiting) -> tuple[Splits, Waiting]:
        """Pack waiting replicas, the largest first, each onto the nodes where the fewest GPUs stay
        free; return what is left, and the replicas that fit on no node."""
        left, unplaced = Counter(dict(splits)), []
        for footprint, replicas in waiting:
            for placed in range(replicas):
                chosen = self._choose(left, footprint)
                if len(chosen) < footprint.nodes:
                    unplaced.append((footprint, replicas - placed))
                    break
                left.subtract(chosen)
                left.update(take(split, footprint.gpus_per_node) for split in chosen)
        return as_splits(left), unplaced

    def _choose(self, left: Mapping[Split, int], footprint: Footprint) -> list[Split]:
        """The nodes for one replica, or fewer than it needs."""
        chosen: list[Split] = []
        for split in sorted(left, key=lambda split: (sum(split), split)):
            if self.pods_on(split, footprint):
                missing = footprint.nodes - len(chosen)
                chosen += [split] * min(left[split], missing)
        return chosen


def take(split: Split, gpus: int) -> Split:
    """What stays free after a pod has taken so many GPUs: of the smallest part that is enough,
    otherwise of the smallest ones."""
    enough = next((place for place, free in enumerate(split) if free >= gpus), None)
    left = list(split)
    if enough is not None:
        left[enough] -= gpus
        gpus = 0
    for place, free in enumerate(left):
        taken = min(free, gpus)
        left[place] -= taken
        gpus -= taken
    return tuple(sorted(free for free in left if free))
