"""Resources in use: held by pods that exist, or assumed for replicas that are not scheduled yet.

Algorithm. What a node has free is what is allocatable there less the requests of all pods bound to
it. Resources are assumed for the operator's replicas that are not bound yet: these are packed onto
the nodes of their pool, the largest first, each onto the node where the fewest GPUs stay free (best
fit decreasing, ties by CPU, memory, storage and name). A replica that fits on no node takes
nothing: it waits for a free block that does not exist yet, or for a node that an autoscaler may
still add.

Where a replica replaces its owner's pods, which have another parallelism or are being deleted, what
these still hold is its own: only what it needs in addition is assumed.

`pack` counts nodes by what is free on them, without names, where that is bounded
(`resources.AMPLE`) or not. `pack_nodes` packs nodes by name, for lists of nodes. Both give the same
counts for replicas that are countable.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tonnage.fleet.resources import NOTHING, Resources

Waiting = Sequence[tuple[Resources, int]]
"""(requests of a replica, replicas still to be scheduled) pairs, the largest replicas first."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`left` counts nodes by what stays free on them, `unplaced` are the replicas that fit on no
    node, the largest first."""

    left: dict[Resources, int]
    unplaced: Waiting


@dataclass(frozen=True, slots=True)
class Successor:
    """Replicas with these requests that replace their owner's pods: of an older parallelism, or
    being deleted. `superseded` is what these pods hold, by node; no other owner may use it."""

    requests: Resources
    replicas: int
    superseded: Mapping[str, Resources]


@dataclass(frozen=True, slots=True)
class PackedNodes:
    """Like Packed, but `left` is what is free by node name."""

    left: dict[str, Resources]
    unplaced: Waiting


def pack(blocks: Mapping[Resources, int], waiting: Waiting) -> Packed:
    """Pack waiting replicas onto nodes that are counted by what is free on them. Where that is
    bounded, the replicas have to be countable."""
    left, unplaced = Counter(blocks), []
    for requests, replicas in waiting:
        missing = replicas
        while missing:
            sufficient = (free for free, nodes in left.items() if nodes and free.covers(requests))
            best = min(sufficient, default=None)
            if best is None:
                unplaced.append((requests, missing))
                break
            missing -= _fill(left, best, requests, missing)
    return Packed({free: nodes for free, nodes in left.items() if nodes}, unplaced)


def _fill(left: Counter[Resources], best: Resources, requests: Resources, missing: int) -> int:
    """Fill nodes of the `best` block, one after the other: once a replica is on a node, no other
    node has a smaller block that is enough. Return how many replicas were placed."""
    per_node = best.count(requests)
    filled = min(left[best], missing // per_node)
    left[best] -= filled
    left[best.minus(requests.times(per_node))] += filled
    placed = filled * per_node
    rest = min(missing - placed, per_node) if left[best] else 0
    if rest:  # fewer than fill a node
        left[best] -= 1
        left[best.minus(requests.times(rest))] += 1
    return placed + rest


def pack_nodes(
    free: Mapping[str, Resources], waiting: Waiting, successors: Sequence[Successor] = ()
) -> PackedNodes:
    """Pack waiting replicas onto nodes by name, the largest first, of equal ones successors."""
    nodes, unplaced = _FreeNodes(free), []
    pending = [
        *((each.requests, each.replicas, dict(each.superseded)) for each in successors),
        *((requests, replicas, None) for requests, replicas in waiting),
    ]
    for requests, replicas, superseded in sorted(pending, key=lambda item: item[0], reverse=True):
        for placed in range(replicas):
            if superseded and nodes.take_superseded(superseded, requests):
                continue
            if not nodes.take(requests):
                unplaced.append((requests, replicas - placed))
                break
    return PackedNodes(nodes.left, unplaced)


class _FreeNodes:
    """Nodes by what stays free on them. A block has the nodes with equal bounded resources: their
    names are a heap, whose stale entries (the node is in another block now) are skipped."""

    def __init__(self, free: Mapping[str, Resources]) -> None:
        self.left = dict(free)
        self._blocks: dict[Resources, list[str]] = {}
        for name, left in sorted(self.left.items()):
            # Sorted, so each list is a heap.
            self._blocks.setdefault(left.bounded(), []).append(name)

    def take(self, requests: Resources) -> bool:
        """Take the requests of the node with the smallest sufficient block; False when there is
        none."""
        if not requests.is_countable:
            return self._take_uncountable(requests)
        for block in sorted(block for block in self._blocks if block.covers(requests)):
            names = self._blocks[block]
            while names and self.left[names[0]].bounded() != block:
                heapq.heappop(names)
            if names:
                self._take_from(names[0], requests)
                return True
        return False

    def _take_uncountable(self, requests: Resources) -> bool:
        sufficient = (
            (left.bounded(), name) for name, left in self.left.items() if left.covers(requests)
        )
        best = min(sufficient, default=None)
        if best is None:
            return False
        self._take_from(best[1], requests)
        return True

    def take_superseded(self, superseded: dict[str, Resources], requests: Resources) -> bool:
        """Take what the replica's predecessors hold, and as little of what is free as possible."""
        sufficient = [
            (requests.minus(held), name)
            for name, held in superseded.items()
            if held.gpus and name in self.left and held.plus(self.left[name]).covers(requests)
        ]
        if not sufficient:
            return False
        additional, name = min(sufficient)
        superseded[name] = superseded[name].minus(requests)
        if additional != NOTHING:
            self._take_from(name, additional)
        return True

    def _take_from(self, name: str, requests: Resources) -> None:
        left = self.left[name] = self.left[name].minus(requests)
        heapq.heappush(self._blocks.setdefault(left.bounded(), []), name)
