"""GPUs in use: held by pods that exist, or assumed for replicas that are not scheduled yet.

Algorithm. A node's free GPUs are its allocatable ones less the requests of all pods bound to it.
GPUs are assumed for the operator's replicas that are not bound yet: these are packed onto the
nodes of their pool, the largest first, each onto the node where the fewest GPUs stay free (best
fit decreasing, ties by name). A replica that fits on no node takes no GPUs: it waits for a free
block that does not exist yet, or for a node that an autoscaler may still add.

Where a replica replaces its owner's pods, which have another parallelism or are being deleted, the
GPUs that these still hold are its own: GPUs are assumed only for what it needs in addition.

`pack` counts nodes by their free GPUs, without names. `pack_nodes` packs nodes by name, for lists
of nodes; both give the same counts.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Waiting = Sequence[tuple[int, int]]
"""(GPUs of a replica, replicas still to be scheduled) pairs, the largest replicas first."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`left` counts nodes by the GPUs that stay free on them, `unplaced` are the replicas that fit
    on no node, the largest first."""

    left: dict[int, int]
    unplaced: Waiting


@dataclass(frozen=True, slots=True)
class Successor:
    """Replicas of `gpus` each that replace their owner's pods: of an older parallelism, or being
    deleted. `superseded_gpus` are the GPUs that these pods hold, by node; no other owner may use
    them."""

    gpus: int
    replicas: int
    superseded_gpus: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PackedNodes:
    """Like Packed, but `left` are the free GPUs by node name."""

    left: dict[str, int]
    unplaced: Waiting


def pack(blocks: Mapping[int, int], waiting: Waiting) -> Packed:
    """Pack waiting replicas onto nodes that are counted by their free GPUs."""
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
    node has a smaller block that is enough. Return how many replicas were placed."""
    per_node = best // gpus
    filled = min(left[best], missing // per_node)
    left[best] -= filled
    left[best - per_node * gpus] += filled
    placed = filled * per_node
    rest = min(missing - placed, per_node) if left[best] else 0
    if rest:  # fewer than fill a node
        left[best] -= 1
        left[best - rest * gpus] += 1
    return placed + rest


def pack_nodes(
    free: Mapping[str, int], waiting: Waiting, successors: Sequence[Successor] = ()
) -> PackedNodes:
    """Pack waiting replicas onto nodes by name, the largest first, of equal ones successors."""
    nodes, unplaced = _FreeNodes(free), []
    pending = [
        *((each.gpus, each.replicas, dict(each.superseded_gpus)) for each in successors),
        *((gpus, replicas, None) for gpus, replicas in waiting),
    ]
    for gpus, replicas, superseded_gpus in sorted(pending, key=lambda item: -item[0]):
        for placed in range(replicas):
            if superseded_gpus and nodes.take_superseded(superseded_gpus, gpus):
                continue
            if not nodes.take(gpus):
                unplaced.append((gpus, replicas - placed))
                break
    return PackedNodes(nodes.left, unplaced)


class _FreeNodes:
    """Nodes by the GPUs that stay free on them. The names per free count are a heap, whose stale
    entries (the node has another free count now) are skipped."""

    def __init__(self, free: Mapping[str, int]) -> None:
        self.left = dict(free)
        self._blocks: dict[int, list[str]] = {}
        for name, count in sorted(self.left.items()):
            self._blocks.setdefault(count, []).append(name)  # sorted, so each list is a heap

    def take(self, gpus: int) -> bool:
        """Take GPUs of the node with the smallest sufficient block; False when there is none."""
        for size in sorted(size for size in self._blocks if size >= gpus):
            names = self._blocks[size]
            while names and self.left[names[0]] != size:
                heapq.heappop(names)
            if names:
                self._take_from(names[0], gpus)
                return True
        return False

    def take_superseded(self, superseded_gpus: dict[str, int], gpus: int) -> bool:
        """Take GPUs that the replica's predecessors hold, and as few free ones as possible."""
        sufficient = [
            (max(0, gpus - held), name)
            for name, held in superseded_gpus.items()
            if held and name in self.left and held + self.left[name] >= gpus
        ]
        if not sufficient:
            return False
        additional, name = min(sufficient)
        superseded_gpus[name] -= gpus - additional
        if additional:
            self._take_from(name, additional)
        return True

    def _take_from(self, name: str, gpus: int) -> None:
        self.left[name] -= gpus
        heapq.heappush(self._blocks.setdefault(self.left[name], []), name)
