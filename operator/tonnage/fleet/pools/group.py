"""The nodes of one pool, counted by class and by their free GPUs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tonnage.fleet.devices.recognize import Unrecognised
from tonnage.fleet.nodes.node_class import GroupKey, NodeClass


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the group.

    `unusable` is why the node itself is no capacity now, `used` are the GPUs of its class's
    resource that bound pods hold. `starting`: it holds no pod yet and offers no GPUs yet, or is not
    set up yet.
    """

    node_class: NodeClass
    unusable: str | None
    used: int
    starting: bool = False

    @property
    def free(self) -> int:
        """Allocatable GPUs that no bound pod holds, whether or not the node is usable."""
        return max(0, self.node_class.allocatable - self.used)


@dataclass(slots=True)
class ClassCounts:
    """The members of one class: how many nodes, how many of them are starting, and the usable ones
    by their free GPUs."""

    nodes: int = 0
    starting: int = 0
    usable_by_free: Counter[int] = field(default_factory=Counter)


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
        counts.starting += member.starting
        if member.unusable is None:
            counts.usable_by_free[member.free] += 1

    def _uncount(self, member: Member) -> None:
        counts = self.classes[member.node_class]
        counts.nodes -= 1
        counts.starting -= member.starting
        if member.unusable is None:
            counts.usable_by_free[member.free] -= 1
            if not counts.usable_by_free[member.free]:
                del counts.usable_by_free[member.free]
        if not counts.nodes:
            del self.classes[member.node_class]
            self.classes_changed = True
