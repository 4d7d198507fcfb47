"""The nodes of a pool: counted eagerly, listed lazily.

A fleet has ten thousand nodes. A plan needs what is free in two hundred pools; only people need
lists of nodes. So a pool counts its nodes by what is free on them, and builds the list at the first
read. A replica that requests far more CPU, memory or storage than usual is counted by the list.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import overload

from tonnage.fleet.occupancy import PackedNodes, Waiting, pack, pack_nodes
from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources

Blocks = tuple[tuple[Resources, int], ...]


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node of a pool: its GPUs in total, allocatable ones and free ones.

    `size` and `spare` are its allocatable and its free CPU, memory and storage, without GPUs.
    """

    name: str
    gpus: int
    allocatable: int
    free: int
    unusable: str | None
    size: Resources = UNKNOWN_SIZE
    spare: Resources = UNKNOWN_SIZE

    @property
    def available(self) -> Resources:
        """What is free for replicas: nothing on a node that takes none."""
        if self.unusable is not None:
            return NOTHING
        return self.spare._replace(gpus=self.free)

    def left(self, available: Resources) -> "PoolNode":
        """The node with only this available."""
        return replace(self, free=available.gpus, spare=available._replace(gpus=0))


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Counts of a pool's nodes and GPUs.

    `nodes` counts all nodes, `usable` those that can take pods now; `total` are the GPUs of all,
    `allocatable` of usable ones, `largest_node` the most on one. `blocks` are pairs of what is free
    on a node, bounded as `Resources.bounded` says, and the usable nodes with as much, the smallest
    first, without nodes that have no GPU free; `to_come` are such pairs, not bounded, of nodes that
    an autoscaler may still add.
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
        return sum(free.gpus * nodes for free, nodes in self.blocks)

    @property
    def largest_free_block(self) -> int:
        """Most free GPUs on one node."""
        return self.blocks[-1][0].gpus if self.blocks else 0

    def replica_capacity(self, requests: Resources) -> int:
        """Replicas with these countable requests that can start now; a replica runs on one node."""
        return count_replicas(self.blocks, requests)

    def added_capacity(self, requests: Resources) -> int:
        """Replicas that can start on nodes that an autoscaler may still add."""
        return count_replicas(self.to_come, requests)

    def less(self, waiting: Waiting) -> "NodeCounts":
        """The counts after these countable replicas are packed onto the nodes, and onto those to
        come."""
        packed = pack(dict(self.blocks), waiting)
        return replace(self, blocks=bounded_blocks(packed.left)).less_to_come(packed.unplaced)

    def less_to_come(self, unplaced: Waiting) -> "NodeCounts":
        """The counts after replicas that fit on no node are packed onto the nodes to come."""
        packed = pack(dict(self.to_come), unplaced)
        return replace(self, to_come=as_blocks(packed.left))


def count_replicas(blocks: Blocks, requests: Resources) -> int:
    """Return the replicas with these requests that nodes with as much free can hold."""
    return sum(free.count(requests) * nodes for free, nodes in blocks)


def bounded_blocks(nodes: Mapping[Resources, int]) -> Blocks:
    """Return the blocks of usable nodes, for numbers of nodes by what is free on them."""
    bounded: Counter[Resources] = Counter()
    for free, count in nodes.items():
        bounded[free.bounded()] += count
    return as_blocks(bounded)


def as_blocks(nodes: Mapping[Resources, int]) -> Blocks:
    """Return the blocks of NodeCounts for numbers of nodes by what is free on them."""
    return tuple(sorted((free, count) for free, count in nodes.items() if free.gpus and count))


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
        if all(requests.is_countable for requests, _ in waiting):
            return PoolNodes(self.counts.less(waiting), lambda: self._list_less(waiting))
        unplaced = self._pack(waiting).unplaced
        to_come = self.counts.less_to_come(unplaced).to_come
        return PoolNodes.of(self._list_less(waiting), to_come)

    def replica_capacity(self, requests: Resources) -> int:
        """Replicas with these requests that can start now; a replica runs on one node."""
        if requests.is_countable:
            return self.counts.replica_capacity(requests)
        return sum(node.available.count(requests) for node in self)

    def _list_less(self, waiting: Waiting) -> Iterable[PoolNode]:
        left = self._pack(waiting).left
        return (node.left(left[node.name]) if node.name in left else node for node in self)

    def _pack(self, waiting: Waiting) -> PackedNodes:
        usable = (node for node in self if node.unusable is None)
        return pack_nodes({node.name: node.available for node in usable}, waiting)

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
    blocks = Counter(node.available.bounded() for node in usable if node.free)
    return NodeCounts(
        nodes=len(nodes),
        usable=len(usable),
        total=sum(node.gpus for node in nodes),
        allocatable=sum(node.allocatable for node in usable),
        largest_node=max((node.gpus for node in nodes), default=0),
        blocks=as_blocks(blocks),
    )
