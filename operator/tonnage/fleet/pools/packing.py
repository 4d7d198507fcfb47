"""Packs the demands on a group onto its nodes by name."""

from collections.abc import Mapping
from dataclasses import dataclass

from tonnage.fleet.alignment import Alignment, Split, take
from tonnage.fleet.occupancy import PackedNodes, pack_nodes
from tonnage.fleet.pools.capacity import Demands
from tonnage.fleet.pools.description import Reasons
from tonnage.fleet.pools.group import Member


@dataclass(frozen=True, slots=True)
class Packing:
    """What decides where replicas can start. `topology_key` is the label whose value the nodes of a
    replica share, `alignment` what the GPUs of a pod share; None: nothing."""

    reasons: Reasons
    demands: Demands
    topology_key: str | None
    alignment: Alignment | None

    @property
    def by_name(self) -> bool:
        """Whether numbers of nodes do not suffice to pack the demands."""
        on_several = any(footprint.nodes > 1 for footprint, _ in self.demands.waiting)
        return bool(self.demands.successors) or (self.topology_key is not None and on_several)

    def pack(self, members: Mapping[str, Member]) -> PackedNodes:
        """Pack the unscheduled replicas onto the usable nodes."""
        usable = {
            name: member for name, member in members.items() if self.why_unusable(member) is None
        }
        free = {name: self.demands.free(name, member) for name, member in usable.items()}
        domains = (
            {name: self.domain_of(member) for name, member in usable.items()}
            if self.topology_key
            else None
        )
        return pack_nodes(free, self.demands.waiting, self.demands.successors, domains)

    def split(self, name: str, member: Member, left: int) -> Split:
        """Free GPUs of a node by what those of aligned pods share, where so many are left."""
        assumed = self.demands.free(name, member) - left
        return take(self.demands.split(name, member), assumed)

    def domain_of(self, member: Member) -> str | None:
        """The value of the topology label; None without one."""
        key = self.topology_key
        return None if key is None else member.node_class.labels.get(key)

    def why_unusable(self, member: Member) -> str | None:
        """Why the node is no capacity now; None where it is."""
        return member.unusable or self.reasons[member.node_class]
