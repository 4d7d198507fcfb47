"""The nodes of one pool, counted by class and by what is free on them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tonnage.fleet.devices.recognize import Unrecognised
from tonnage.fleet.nodes.node_class import GroupKey, NodeClass
from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources, largest


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the group.

    `unusable` is why the node itself is no capacity now, `used` is what bound pods hold: GPUs of
    its class's resource, CPU, memory and storage. `size` is its allocatable CPU, memory and
    storage.
    """

    node_class: NodeClass
    unusable: str | None
    used: Resources = NOTHING
    size: Resources = UNKNOWN_SIZE

    @property
    def free(self) -> Resources:
        """What is allocatable and no bound pod holds, whether or not the node is usable."""
        return self.size._replace(gpus=self.node_class.allocatable).minus(self.used)


@dataclass(slots=True)
class ClassCounts:
    """The members of one class: how many nodes, the usable ones by what is free on them (bounded),
    and the largest size of any since the class has members."""

    nodes: int = 0
    usable_by_free: Counter[Resources] = field(default_factory=Counter)
    size: Resources = NOTHING


class Group:
    """The nodes of one pool, by name. `classes_changed` says that its set of classes has changed
    since the caller last reset it."""

    def __init__(self, key: GroupKey) -> None:
        self.key: Final = key
        self.members: Final[dict[str, Member]] = {}
        self.classes: Final[dict[NodeClass, ClassCounts]] = {}
        self.classes_changed = True

    def put(self, name: str, member: Member) -> bool:
        """Add or update a node; return whether that changes anything."""
        before = self.members.get(name)
        if before == member:
            return False
        if before is not None:
            self._uncount(before)
        self.members[name] = member
        self._count(member)
        return True

    def remove(self, name: str) -> None:
        """Remove a node of the group. Raises KeyError for any other node."""
        self._uncount(self.members.pop(name))

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
        counts.size = largest((counts.size, member.size))
        if member.unusable is None:
            counts.usable_by_free[member.free.bounded()] += 1

    def _uncount(self, member: Member) -> None:
        counts = self.classes[member.node_class]
        counts.nodes -= 1
        if member.unusable is None:
            free = member.free.bounded()
            counts.usable_by_free[free] -= 1
            if not counts.usable_by_free[free]:
                del counts.usable_by_free[free]
        if not counts.nodes:
            del self.classes[member.node_class]
            self.classes_changed = True
