"""The nodes of one pool, counted by class and by the GPUs that are free on them."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from tonnage.fleet.node_class import GroupKey, NodeClass


@dataclass(frozen=True, slots=True)
class Member:
    """A node of the group.

    `unusable` is why the node itself is no capacity now, `used` are the GPUs of its class's
    resource that bound pods hold.
    """

    kind: NodeClass
    unusable: str | None
    used: int

    @property
    def free(self) -> int:
        """Allocatable GPUs that no bound pod holds, whether or not the node is usable."""
        return max(0, self.kind.allocatable - self.used)


@dataclass(slots=True)
class Alike:
    """The members of one class: how many, and those that are in order by their free GPUs."""

    count: int = 0
    in_order: Counter[int] = field(default_factory=Counter)


class Group:
    """Nodes that are one pool, by name. `recast` tells that its set of classes has changed since
    somebody last set it back."""

    def __init__(self, key: GroupKey) -> None:
        self.key: Final = key
        self.members: Final[dict[str, Member]] = {}
        self.classes: Final[dict[NodeClass, Alike]] = {}
        self.recast = True

    def put(self, name: str, member: Member) -> bool:
        """The node joins, or is so now; whether that changes anything."""
        before = self.members.get(name)
        if before == member:
            return False
        if before is not None:
            self._uncount(before)
        self.members[name] = member
        self._count(member)
        return True

    def remove(self, name: str) -> None:
        """The node, which is there, leaves."""
        self._uncount(self.members.pop(name))

    def _count(self, member: Member) -> None:
        alike = self.classes.get(member.kind)
        if alike is None:
            alike = self.classes[member.kind] = Alike()
            self.recast = True
        alike.count += 1
        if member.unusable is None:
            alike.in_order[member.free] += 1

    def _uncount(self, member: Member) -> None:
        alike = self.classes[member.kind]
        alike.count -= 1
        if member.unusable is None:
            alike.in_order[member.free] -= 1
            if not alike.in_order[member.free]:
                del alike.in_order[member.free]
        if not alike.count:
            del self.classes[member.kind]
            self.recast = True
