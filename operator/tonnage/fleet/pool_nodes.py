"""The nodes of a pool: counted eagerly, listed lazily.

A fleet has ten thousand nodes. A plan needs the free GPUs of two hundred pools; only people need
lists of nodes. So a pool counts its nodes by free GPUs, and builds the list at the first read.

Of CPU, memory and storage it knows what each node has at least for each free GPU. Only replicas
that request more for each of their GPUs are counted node by node.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import overload

from tonnage.fit.model import Footprint
from tonnage.fleet.alignment import Alignment, Split, Splits, as_splits, take
from tonnage.fleet.occupancy import (
    PackedNodes,
    PodsPerNode,
    Waiting,
    count_replicas,
    pack,
    pack_nodes,
    split_waiting,
)
from tonnage.fleet.resources import NOTHING, UNKNOWN_SIZE, Resources, least, most

Blocks = tuple[tuple[int, int], ...]

CountPods = Callable[[Footprint, Resources], PodsPerNode]
"""Counts pods of replicas by their footprint and by what a pod requests besides GPUs."""


@dataclass(frozen=True, slots=True)
class PoolNode:
    """A node of a pool: its GPUs in total, allocatable ones and free ones. `starting`: it counts as
    a node to come. `size` is its allocatable CPU, memory and storage, `spare` what pods with GPUs
    leave of it, `domain` its value of the pool's topology label, `split` its free GPUs by what
    those of pods share, where the pool has an `alignment`."""

    name: str
    gpus: int
    allocatable: int
    free: int
    unusable: str | None
    starting: bool = False
    size: Resources = UNKNOWN_SIZE
    spare: Resources = UNKNOWN_SIZE
    domain: str | None = None
    alignment: Alignment | None = None
    split: Split = ()

    def count_pods(self, footprint: Footprint, others: Resources) -> int:
        """Pods of replicas of this footprint, with these other requests, that can start on the
        node."""
        if self.unusable is not None:
            return 0
        pods = footprint.pods_on(self.free)
        if self.alignment is not None:
            pods = min(pods, self.alignment.pods_on(self.split, footprint))
        return self.spare.fitting(others, pods)

    def with_free(self, free: int) -> "PoolNode":
        """The node with fewer free GPUs."""
        return replace(self, free=free, split=take(self.split, self.free - free))


@dataclass(frozen=True, slots=True)
class NodeCounts:
    """Counts of a pool's nodes and GPUs.

    `nodes` counts all nodes, `usable` those that can take pods now; `total` are the GPUs of all,
    `allocatable` of usable ones, `largest_node` the most on one. `blocks` are (free GPUs, usable
    nodes with that many) pairs, the smallest first, without nodes that have none free; `to_come`
    are such pairs of nodes that an autoscaler may still add, or that are starting. `spare_per_gpu`
    is the CPU, memory and storage that each node has at least for each free GPU, rounded down;
    `largest_size` the most of each on one node, rounded up, as on a node to come. `splits` are the
    usable nodes by what GPUs share, where the pool has an `alignment`.
    """

    nodes: int
    usable: int
    total: int
    allocatable: int
    largest_node: int
    blocks: Blocks
    to_come: Blocks = ()
    spare_per_gpu: Resources = field(default=UNKNOWN_SIZE, compare=False)
    largest_size: Resources = UNKNOWN_SIZE
    alignment: Alignment | None = None
    splits: Splits = ()

    @property
    def free(self) -> int:
        """Free GPUs on usable nodes."""
        return sum(free * nodes for free, nodes in self.blocks)

    @property
    def largest_free_block(self) -> int:
        """Most free GPUs on one node."""
        return self.blocks[-1][0] if self.blocks else 0

    def nodes_with(self, gpus: int) -> int:
        """Usable nodes with at least so many free GPUs, of which there is one at least."""
        return sum(nodes for free, nodes in self.blocks if free >= gpus)

    def count_pods(self, footprint: Footprint) -> PodsPerNode:
        """Pods of replicas of this footprint that can start now, as far as GPUs decide it."""
        pods: Counter[int] = Counter()
        if self.alignment is not None and self.alignment.applies_to(footprint):
            for split, nodes in self.splits:
                pods[self.alignment.pods_on(split, footprint)] += nodes
            return pods
        for free, nodes in self.blocks:
            pods[footprint.pods_on(free)] += nodes
        return pods

    def pods_on_empty(self, gpus: int, footprint: Footprint) -> int:
        """Pods of the footprint that can start on a node to come with so many GPUs."""
        if self.alignment is None:
            return footprint.pods_on(gpus)
        return self.alignment.pods_on_empty(gpus, footprint)

    def count_pods_to_come(self, footprint: Footprint, others: Resources = NOTHING) -> PodsPerNode:
        """Pods of replicas of this footprint that can start on nodes to come."""
        pods: Counter[int] = Counter()
        for gpus, nodes in self.to_come:
            pods[self.largest_size.fitting(others, self.pods_on_empty(gpus, footprint))] += nodes
        return pods

    def less(self, waiting: Waiting) -> "NodeCounts":
        """The counts after these replicas are packed onto the nodes, and onto those to come."""
        if not waiting:
            return self
        packed = pack(dict(self.blocks), waiting)
        left = replace(self, blocks=as_blocks(packed.left))
        if self.alignment is None:
            return left.less_to_come(packed.unplaced)
        splits, unplaced = self.alignment.pack(self.splits, waiting)
        return replace(left, splits=splits).less_to_come(unplaced)

    def split_waiting(self, waiting: Waiting) -> tuple[Waiting, Waiting]:
        """Split the replicas into what takes GPUs of nodes that exist, and of nodes to come."""
        return split_waiting(dict(self.blocks), dict(self.to_come), waiting)

    def less_to_come(self, unplaced: Waiting) -> "NodeCounts":
        """The counts after replicas that fit on no node are packed onto the nodes to come."""
        if not unplaced:
            return self
        packed = pack(dict(self.to_come), unplaced)
        return replace(self, to_come=as_blocks(packed.left))


def as_blocks(nodes: Mapping[int, int]) -> Blocks:
    """Return the blocks of NodeCounts for numbers of nodes by their free GPUs."""
    return tuple(sorted((free, count) for free, count in nodes.items() if free and count))


def largest_size(sizes: Iterable[Resources]) -> Resources:
    """Return the most of each kind, rounded up; unknown where there is no node."""
    largest = most(size.rounded_up() for size in sizes)
    return UNKNOWN_SIZE if largest == NOTHING else largest


class PoolNodes(Sequence[PoolNode]):
    """A pool's nodes by name, with their counts; list and counts are of the same moment. With
    `has_domains`, each replica on several nodes is in one topology domain."""

    __slots__ = ("_count_pods", "_list", "_listed", "counts", "has_domains")

    def __init__(
        self,
        counts: NodeCounts,
        list_nodes: Callable[[], Iterable[PoolNode]],
        count_pods: CountPods | None = None,
        *,
        has_domains: bool = False,
    ) -> None:
        """`count_pods` counts pods that request more than each node has, without a list of all
        nodes."""
        self.counts = counts
        self.has_domains = has_domains
        self._list = list_nodes
        self._count_pods = count_pods
        self._listed: tuple[PoolNode, ...] | None = None

    @classmethod
    def of(
        cls, nodes: Iterable[PoolNode], to_come: Blocks = (), *, has_domains: bool = False
    ) -> "PoolNodes":
        """Count nodes that are already listed."""
        listed = tuple(sorted(nodes, key=lambda node: node.name))
        counts = replace(_count(listed), to_come=to_come)
        return cls(counts, lambda: listed, has_domains=has_domains)

    def replica_capacity(self, footprint: Footprint, others: Resources = NOTHING) -> int:
        """Replicas of this footprint, whose pods have these other requests, that can start now."""
        if self.has_domains and footprint.nodes > 1:
            return sum(
                count_replicas(pods, footprint.nodes)
                for pods in self._pods_by_domain(footprint, others).values()
            )
        return count_replicas(self._pods_per_node(footprint, others), footprint.nodes)

    def capacity_after_growth(self, footprint: Footprint, others: Resources = NOTHING) -> int:
        """Replicas of this footprint that can start now or on nodes to come. Of several domains,
        all nodes to come are assumed to be in another one."""
        to_come = self.counts.count_pods_to_come(footprint, others)
        if self.has_domains and footprint.nodes > 1:
            now = self.replica_capacity(footprint, others)
            return now + count_replicas(to_come, footprint.nodes)
        pods = Counter(self._pods_per_node(footprint, others))
        pods.update(to_come)
        return count_replicas(pods, footprint.nodes)

    def nodes_to_add(self, footprint: Footprint, others: Resources, more: int) -> int:
        """Nodes of the largest size that so many `more` replicas need. On several nodes, they use
        free nodes as well, except where all nodes of a replica are in one domain."""
        pods_on_node = self.counts.pods_on_empty(self.counts.largest_node, footprint)
        each = max(1, self.counts.largest_size.fitting(others, pods_on_node))
        pods = more * footprint.nodes
        if footprint.nodes > 1 and not self.has_domains:
            now = self._pods_per_node(footprint, others)
            running = self.replica_capacity(footprint, others) * footprint.nodes
            pods -= max(0, sum(count * nodes for count, nodes in now.items()) - running)
        return max(1, -(-pods // each))

    def _pods_by_domain(
        self, footprint: Footprint, others: Resources
    ) -> Mapping[str, Counter[int]]:
        domains: dict[str, Counter[int]] = {}
        for node in self:
            if node.domain is not None:
                pods = domains.setdefault(node.domain, Counter())
                pods[node.count_pods(footprint, others)] += 1
        return domains

    def _pods_per_node(self, footprint: Footprint, others: Resources) -> PodsPerNode:
        if self.counts.spare_per_gpu.times(footprint.gpus_per_node).covers(others):
            return self.counts.count_pods(footprint)
        if self._count_pods is not None:
            return self._count_pods(footprint, others)
        return Counter(node.count_pods(footprint, others) for node in self)

    def limited_to(self, why_not: Callable[[str], str | None]) -> "PoolNodes":
        """The nodes, of which those are unusable for which `why_not` gives a reason by name. Nodes
        to come are not limited."""
        nodes = tuple(
            replace(node, unusable=reason)
            if node.unusable is None and (reason := why_not(node.name)) is not None
            else node
            for node in self
        )
        to_come, size = self.counts.to_come, self.counts.largest_size
        counts = replace(_count(nodes), to_come=to_come, largest_size=size)
        return PoolNodes(counts, lambda: nodes, has_domains=self.has_domains)

    def less(self, waiting: Waiting) -> "PoolNodes":
        """The nodes after these replicas are packed onto them, too."""
        if not self.has_domains:
            now, after = self.counts.split_waiting(waiting)
            counts = self.counts.less_to_come(after).less(now)
            return PoolNodes(counts, lambda: self._list_less(now))
        packed = self.pack(waiting)
        to_come = self.counts.less_to_come(packed.unplaced).to_come
        return PoolNodes.of(self._list_less(waiting), to_come, has_domains=True)

    def pack(self, waiting: Waiting) -> PackedNodes:
        """Pack these replicas onto the usable nodes by name."""
        usable = [node for node in self if node.unusable is None]
        domains = {node.name: node.domain for node in usable} if self.has_domains else None
        return pack_nodes({node.name: node.free for node in usable}, waiting, domains=domains)

    def _list_less(self, waiting: Waiting) -> Iterable[PoolNode]:
        left = self.pack(waiting).left
        return (node.with_free(left.get(node.name, 0)) for node in self)

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
    alignment = next((node.alignment for node in nodes if node.alignment is not None), None)
    return NodeCounts(
        nodes=len(nodes),
        usable=len(usable),
        total=sum(node.gpus for node in nodes),
        allocatable=sum(node.allocatable for node in usable),
        largest_node=max((node.gpus for node in nodes), default=0),
        blocks=as_blocks(blocks),
        spare_per_gpu=least(node.spare.for_each(node.free) for node in usable if node.free),
        largest_size=largest_size(node.size for node in nodes),
        alignment=alignment,
        splits=as_splits(Counter(node.split for node in usable)) if alignment else (),
    )
