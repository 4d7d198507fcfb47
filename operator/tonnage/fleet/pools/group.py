"""The nodes of one pool, counted by class and by their free GPUs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final, TypeVar

from tonnage.fleet.alignment import Split
from tonnage.fleet.devices.recognize import Unrecognised
from tonnage.fleet.nodes.node_class import GroupKey, NodeClass
from tonnage.fleet.pools.node_map import NodeMap
from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources

_Counted = TypeVar("_Counted")


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the group. `split` are its free GPUs by what those of aligned pods share, empty
    where the pool aligns none.

    `unusable` is why the node itself is no capacity now, `used` are the GPUs of its class's
    resource that bound pods hold. `starting`: it holds no pod yet and offers no GPUs yet, or is not
    set up yet. `size` is its allocatable CPU, memory and storage, `requested` what bound pods with
    GPUs request of it.
    """

    node_class: NodeClass
    unusable: str | None
    used: int
    starting: bool = False
    size: Resources = UNKNOWN_SIZE
    requested: Resources = NOTHING
    split: Split = ()
    spare_per_gpu: Resources | None = field(init=False, repr=False, compare=False)
    """CPU, memory and storage for each free GPU, rounded; None on a node that takes no pod."""

    def __post_init__(self) -> None:
        # A plan may read it of every node.
        takes_pods = self.unusable is None and self.free > 0
        spare = self.size.minus(self.requested).for_each(self.free) if takes_pods else None
        object.__setattr__(self, "spare_per_gpu", spare)

    @property
    def free(self) -> int:
        """Allocatable GPUs that no bound pod holds, whether or not the node is usable."""
        return max(0, self.node_class.allocatable - self.used)


@dataclass(slots=True)
class ClassCounts:
    """The members of one class: how many nodes, how many of them are starting, and the usable ones
    by their free GPUs. `splits` counts the latter by their split, `spare_per_gpu` by what each free
    GPU has, `sizes` all by their size, rounded up."""

    nodes: int = 0
    starting: int = 0
    usable_by_free: Counter[int] = field(default_factory=Counter)
    splits: Counter[Split] = field(default_factory=Counter)
    spare_per_gpu: Counter[Resources] = field(default_factory=Counter)
    sizes: Counter[Resources] = field(default_factory=Counter)


class Group:
    """The nodes of one pool, by name. `classes_changed` says that its set of classes has changed
    since the caller last reset it."""

    def __init__(self, key: GroupKey) -> None:
        self.key: Final = key
        self.members: Final[NodeMap[Member]] = NodeMap()
        self.classes: Final[dict[NodeClass, ClassCounts]] = {}
        self.classes_changed = True

    def put(self, name: str, member: Member) -> bool:
        """Add or update a node; return whether that changes anything."""
        before = self.members.get(name)
        if before == member:
            return False
        if before is not None:
            self._uncount(before)
        self.members.put(name, member)
        self._count(member)
        return True

    def remove(self, name: str) -> None:
        """Remove a node of the group. Raises KeyError for any other node."""
        self._uncount(self.members.remove(name))

    def first_unrecognised(self, reason: str) -> str:
        """The first node by name that is not recognised for this reason. Raises ValueError for a
        reason that no node has."""
        return min(
            name
            for name, member in self.members.items()
            if isinstance(member.node_class.recognition, Unrecognised)
            and member.node_class.recognition.reason == reason
        )

    def _count(self, member: Member) -> None:
        counts = self.classes.get(member.node_class)
        if counts is None:
            counts = self.classes[member.node_class] = ClassCounts()
            self.classes_changed = True
        counts.nodes += 1
        counts.starting += member.starting
        counts.sizes[member.size.rounded_up()] += 1
        if member.unusable is None:
            counts.usable_by_free[member.free] += 1
            if member.split:
                counts.splits[member.split] += 1
        if member.spare_per_gpu is not None:
            counts.spare_per_gpu[member.spare_per_gpu] += 1

    def _uncount(self, member: Member) -> None:
        counts = self.classes[member.node_class]
        counts.nodes -= 1
        counts.starting -= member.starting
        _subtract(counts.sizes, member.size.rounded_up())
        if member.unusable is None:
            _subtract(counts.usable_by_free, member.free)
            if member.split:
                _subtract(counts.splits, member.split)
        if member.spare_per_gpu is not None:
            _subtract(counts.spare_per_gpu, member.spare_per_gpu)
        if not counts.nodes:
            del self.classes[member.node_class]
            self.classes_changed = True


def _subtract(counter: Counter[_Counted], item: _Counted) -> None:
    counter[item] -= 1
    if not counter[item]:
        del counter[item]
