"""Which GPUs are taken: by pods that exist, and by replicas that are wanted and not yet scheduled.

Algorithm. A node's free GPUs are its allocatable ones less the requests of all pods bound to it.
Replicas of ours that are wanted but not yet bound are GPUs spoken for: they are packed onto the
nodes of their pool, the largest first, each onto the node where the fewest GPUs stay free (best
fit decreasing, ties by name). A replica that finds no node takes nothing: it waits for a block
that nobody can be promised before it is there, or for a node that an autoscaler may still add.

Where a replica takes the place of its owner's pods, of another split or being deleted, the GPUs
that these still hold are its own: what it needs beside them is spoken for, and nothing else.

How many nodes have how many GPUs free follows without their names (`pack`); the names are asked
for where the nodes are listed (`pack_nodes`), and both come to the same.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Waiting = Sequence[tuple[int, int]]
"""(GPUs of a replica, replicas still to be scheduled) pairs, the largest replicas first."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`left` are nodes by the GPUs that stay free on them, `unplaced` the replicas that found no
    node, the largest first."""

    left: dict[int, int]
    unplaced: Waiting


@dataclass(frozen=True, slots=True)
class Successor:
    """Replicas of `gpus` each that take the place of their owner's pods: of an older split, or
    being deleted. `superseded` are the GPUs that these hold, by node; nobody else may have them."""

    gpus: int
    replicas: int
    superseded: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PackedNodes:
    """The same as Packed, by the nodes' names."""

    left: dict[str, int]
    unplaced: Waiting


def pack(blocks: Mapping[int, int], waiting: Waiting) -> Packed:
    """Pack what waits onto nodes, counted by their free GPUs."""
    left, unplaced = Counter(blocks), []
    for gpus, replicas in waiting:
        missing = replicas
        while missing:
            best = min((free for free, nodes in left.items() if free >= gpus and nodes), default=0)
            if not best:
                unplaced.append((gpus, missing))
                break
            missing -= _fill(left, best, gpus, missing)
    return Packed({free: nodes for free, nodes in left.items() if nodes}, unplaced)


def _fill(left: Counter[int], best: int, gpus: int, missing: int) -> int:
    """Fill nodes with `best` free GPUs, one after the other: once a replica is on a node, no other
    has a smaller block that is enough. Tells how many replicas found their place."""
    each = best // gpus
    full = min(left[best], missing // each)
    left[best] -= full
    left[best - each * gpus] += full
    placed = full * each
    rest = min(missing - placed, each) if left[best] else 0
    if rest:  # fewer than a node takes
        left[best] -= 1
        left[best - rest * gpus] += 1
    return placed + rest


def pack_nodes(
    free: Mapping[str, int], waiting: Waiting, successors: Sequence[Successor] = ()
) -> PackedNodes:
    """Pack what waits onto nodes by name, the largest replicas first, of equal ones successors."""
    nodes, unplaced = _FreeNodes(free), []
    own = [dict(successor.superseded) for successor in successors]
    ordered = [
        *((one.gpus, one.replicas, own[place]) for place, one in enumerate(successors)),
        *((gpus, replicas, None) for gpus, replicas in waiting),
    ]
    for gpus, replicas, superseded in sorted(ordered, key=lambda item: -item[0]):
        for placed in range(replicas):
            if superseded and nodes.take_place_of(superseded, gpus):
                continue
            if not nodes.take(gpus):
                unplaced.append((gpus, replicas - placed))
                break
    return PackedNodes(nodes.left, unplaced)


class _FreeNodes:
    """Nodes by the GPUs that stay free on them; each block's names are a heap, in which those of
    nodes that have another block by now are passed over."""

    def __init__(self, free: Mapping[str, int]) -> None:
        self.left = dict(free)
        self._blocks: dict[int, list[str]] = {}
        for name, count in sorted(self.left.items()):
            self._blocks.setdefault(count, []).append(name)  # sorted, so each list is a heap

    def take(self, gpus: int) -> bool:
        """Take GPUs of the node with the smallest block that is enough; False without one."""
        for size in sorted(size for size in self._blocks if size >= gpus):
            names = self._blocks[size]
            while names and self.left[names[0]] != size:
                heapq.heappop(names)
            if names:
                self._take_from(names[0], gpus)
                return True
        return False

    def take_place_of(self, superseded: dict[str, int], gpus: int) -> bool:
        """Take GPUs that the replica's predecessors hold, and as few free ones as may be."""
        enough = [
            (max(0, gpus - held), name)
            for name, held in superseded.items()
            if held and name in self.left and held + self.left[name] >= gpus
        ]
        if not enough:
            return False
        wanting, name = min(enough)
        superseded[name] -= gpus - wanting
        if wanting:
            self._take_from(name, wanting)
        return True

    def _take_from(self, name: str, gpus: int) -> None:
        self.left[name] -= gpus
        heapq.heappush(self._blocks.setdefault(self.left[name], []), name)
