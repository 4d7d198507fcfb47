"""The nodes of a pool: counted eagerly, listed lazily.

A fleet has ten thousand nodes. A plan needs the free GPUs of two hundred pools; only people need
lists of nodes. So a pool counts its nodes by free GPUs, and builds the list at the first read.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

from tonnage.fleet.occupancy import Waiting, pack, pack_nodes

Blocks = tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node of a pool: its GPUs in total, allocatable ones and free ones. `starting`: it counts as
    a node to come."""

    name: str
    gpus: int
    allocatable: int
    free: int
    unusable: str | None
    starting: bool = False


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Counts of a pool's nodes and GPUs.

    `nodes` counts all nodes, `usable` those that can take pods now; `total` are the GPUs of all,
    `allocatable` of usable ones, `largest_node` the most on one. `blocks` are (free GPUs, usable
    nodes with that many) pairs, the smallest first, without nodes that have none free; `to_come`
    are such pairs of nodes that an autoscaler may still add, or that are starting.
    """

    nodes: int
    usable: int
    total: int
    allocatable: int
    largest_node: int
    blocks: Blocks
    to_come: Blocks = ()

    @property
    def free(self) -> int:
        """Free GPUs on usable nodes."""
        return sum(free * nodes for free, nodes in self.blocks)

    @property
    def largest_free_block(self) -> int:
        """Most free GPUs on one node."""
        return self.blocks[-1][0] if self.blocks else 0

    def replica_capacity(self, gpus_per_replica: int) -> int:
        """Replicas of this many GPUs each that can start now; a replica runs on one node."""
        return _capacity(self.blocks, gpus_per_replica)

    def capacity_after_growth(self, gpus_per_replica: int) -> int:
        """Replicas that can start now or on nodes to come."""
        return _capacity(self.blocks, gpus_per_replica) + _capacity(self.to_come, gpus_per_replica)

    def less(self, waiting: Waiting) -> "NodeCounts":
        """The counts after these replicas are packed onto the nodes, and onto those to come."""
        packed = pack(dict(self.blocks), waiting)
        return replace(self, blocks=as_blocks(packed.left)).less_to_come(packed.unplaced)

    def less_to_come(self, unplaced: Waiting) -> "NodeCounts":
        """The counts after replicas that fit on no node are packed onto the nodes to come."""
        packed = pack(dict(self.to_come), unplaced)
        return replace(self, to_come=as_blocks(packed.left))


def _capacity(blocks: Blocks, gpus_per_replica: int) -> int:
    return sum(free // gpus_per_replica * nodes for free, nodes in blocks)


def as_blocks(nodes: Mapping[int, int]) -> Blocks:
    """Return the blocks of NodeCounts for numbers of nodes by their free GPUs."""
    return tuple(sorted((free, count) for free, count in nodes.items() if free and count))


class PoolNodes(Sequence[PoolNode]):
    """A pool's nodes by name, with their counts; list and counts are of the same moment."""

    __slots__ = ("_list", "_listed", "counts")

    def __init__(self, counts: NodeCounts, list_nodes: Callable[[], Iterable[PoolNode]]) -> None:
        self.counts = counts
        self._list = list_nodes
        self._listed: tuple[PoolNode, ...] | None = None

    @classmethod
    def of(cls, nodes: Iterable[PoolNode], to_come: Blocks = ()) -> "PoolNodes":
        """Count nodes that are already listed."""
        listed = tuple(sorted(nodes, key=lambda node: node.name))
        return cls(replace(_count(listed), to_come=to_come), lambda: listed)

    def less(self, waiting: Waiting) -> "PoolNodes":
        """The nodes after these replicas are packed onto them, too."""
        return PoolNodes(self.counts.less(waiting), lambda: self._list_less(waiting))

    def _list_less(self, waiting: Waiting) -> Iterable[PoolNode]:
        free = {node.name: node.free for node in self if node.unusable is None}
        left = pack_nodes(free, waiting).left
        return (replace(node, free=left.get(node.name, 0)) for node in self)

    def unusable(self) -> Sequence[PoolNode]:
        """The nodes that are no capacity now, by name."""
        if self.counts.usable == self.counts.nodes:
            return ()
        return [node for node in self if node.unusable is not None]

    def __len__(self) -> int:
        return self.counts.nodes

    def __iter__(self) -> Iterator[PoolNode]:
        return iter(self._read())

    @overload
    def __getitem__(self, index: int) -> PoolNode: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PoolNode]: ...
    def __getitem__(self, index: int | slice) -> PoolNode | Sequence[PoolNode]:
        return self._read()[index]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, PoolNodes):
            return NotImplemented
        return self.counts == other.counts and self._read() == other._read()

    __hash__ = None  # type: ignore[assignment]  # unhashable, like a list; it may be long

    def __repr__(self) -> str:
        return f"PoolNodes({self._read()!r})"

    def _read(self) -> tuple[PoolNode, ...]:
        if self._listed is None:
            self._listed = tuple(self._list())
        return self._listed


def _count(nodes: Sequence[PoolNode]) -> NodeCounts:
    usable = [node for node in nodes if node.unusable is None]
    blocks = Counter(node.free for node in usable if node.free)
    return NodeCounts(
        nodes=len(nodes),
        usable=len(usable),
        total=sum(node.gpus for node in nodes),
        allocatable=sum(node.allocatable for node in usable),
        largest_node=max((node.gpus for node in nodes), default=0),
        blocks=as_blocks(blocks),
    )
