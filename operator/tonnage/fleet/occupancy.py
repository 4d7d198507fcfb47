"""GPUs in use: held by pods that exist, or assumed for replicas that are not scheduled yet.

Algorithm. A node's free GPUs are its allocatable ones less the requests of all pods bound to it.
GPUs are assumed for the operator's replicas that are not bound yet: these are packed onto the
nodes of their pool, the largest first, each onto the node where the fewest GPUs stay free (best
fit decreasing, ties by name). A replica that fits on no node takes no GPUs: it waits for a free
block that does not exist yet, or for a node that an autoscaler may still add.

A replica that needs several nodes takes GPUs on all of them at once, or none: first on the nodes
that hold the most of its pods, so that as many such replicas as possible are placed. Where only
some of its nodes exist and a node autoscaler may add the others, it takes GPUs of both.

Where a replica replaces its owner's pods, which have another parallelism or are being deleted, the
GPUs that these still hold are its own: GPUs are assumed only for what it needs in addition.

`pack` counts nodes by their free GPUs, without names. `pack_nodes` packs nodes by name, for lists
of nodes; both give the same counts.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tonnage.fit.model import Footprint

Waiting = Sequence[tuple[Footprint, int]]
"""(footprint of a replica, replicas still to be scheduled) pairs, the largest replicas first."""


PodsPerNode = Mapping[int, int]
"""Numbers of nodes by the pods of one kind of replica that can start on each."""


Domains = Mapping[str, str | None]
"""The topology domain of each node by name, None for a node that is in none."""


@dataclass(frozen=True, slots=True)
class Packed:
    """`left` counts nodes by the GPUs that stay free on them, `unplaced` are the replicas that fit
    on no node, the largest first."""

    left: dict[int, int]
    unplaced: Waiting


@dataclass(frozen=True, slots=True)
class Successor:
    """Replicas that replace their owner's pods: of an older parallelism, or being deleted.
    `superseded_gpus` are the GPUs that these pods hold, by node; no other owner may use them."""

    footprint: Footprint
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
    for footprint, replicas in waiting:
        missing = replicas
        while missing:
            placed = _place(left, footprint, missing)
            if not placed:
                unplaced.append((footprint, missing))
                break
            missing -= placed
    return Packed({free: nodes for free, nodes in left.items() if nodes}, unplaced)


def split_waiting(
    blocks: Mapping[int, int], to_come: Mapping[int, int], waiting: Waiting
) -> tuple[Waiting, Waiting]:
    """Split the waiting replicas into what takes GPUs of nodes that exist, and of nodes to come.
    Replicas that fit on neither, nor on both together, are among the first."""
    if not to_come or all(footprint.nodes == 1 for footprint, _ in waiting):
        return waiting, ()
    here, later = dict(blocks), dict(to_come)
    now: list[tuple[Footprint, int]] = []
    after: list[tuple[Footprint, int]] = []
    for footprint, replicas in waiting:
        packed = pack(here, ((footprint, replicas),))
        here, missing = packed.left, sum(count for _, count in packed.unplaced)
        now.append((footprint, replicas - missing))
        for placed in range(missing):
            part, rest = _split(footprint, here)
            grown = pack(later, rest)
            if grown.unplaced:
                now.append((footprint, missing - placed))
                break
            here, later = pack(here, part).left, grown.left
            now += part
            after += rest
    return [each for each in now if each[1]], after


def _split(footprint: Footprint, blocks: Mapping[int, int]) -> tuple[Waiting, Waiting]:
    """Split a replica for which these nodes do not suffice into what they hold, and the rest."""
    gpus = footprint.gpus_per_node
    nodes = sum(count for free, count in blocks.items() if free >= gpus)
    part = ((Footprint(gpus, nodes), 1),) if nodes else ()
    return part, ((Footprint(gpus, footprint.nodes - nodes), 1),)


def _place(left: Counter[int], footprint: Footprint, missing: int) -> int:
    """Place as many of the missing replicas as the smallest sufficient blocks hold; return how
    many."""
    gpus = footprint.gpus_per_node
    sufficient = sorted(free for free, nodes in left.items() if free >= gpus and nodes)
    if sum(left[free] for free in sufficient) < footprint.nodes:
        return 0
    if footprint.nodes == 1:
        return _fill(left, sufficient[0], gpus, missing)
    to_take = footprint.nodes
    for free in sorted(sufficient, key=lambda free: (-footprint.pods_on(free), free)):
        taken = min(left[free], to_take)
        left[free] -= taken
        left[free - gpus] += taken
        to_take -= taken
    return 1


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


def count_replicas(pods: PodsPerNode, nodes: int) -> int:
    """Count the replicas of as many nodes each that can start where so many of their pods can.

    The pods of a replica are on different nodes. So k replicas can start if and only if nodes for
    n x k pods are left where each node counts at most k.
    """
    if nodes == 1:
        return sum(each * count for each, count in pods.items())
    least, most = 0, sum(each * count for each, count in pods.items()) // nodes
    while least < most:
        middle = (least + most + 1) // 2
        if sum(min(middle, each) * count for each, count in pods.items()) >= nodes * middle:
            least = middle
        else:
            most = middle - 1
    return least


def pack_nodes(
    free: Mapping[str, int],
    waiting: Waiting,
    successors: Sequence[Successor] = (),
    domains: Domains | None = None,
) -> PackedNodes:
    """Pack waiting replicas onto nodes by name, the largest first, of equal ones successors. Each
    replica on several nodes is in one of the `domains`, where there are some."""
    nodes, unplaced = _FreeNodes(free, domains), []
    pending = [
        *((each.footprint, each.replicas, dict(each.superseded_gpus)) for each in successors),
        *((footprint, replicas, {}) for footprint, replicas in waiting),
    ]
    for footprint, replicas, superseded_gpus in sorted(
        pending, key=lambda item: item[0], reverse=True
    ):
        for placed in range(replicas):
            if not nodes.place(footprint, superseded_gpus):
                unplaced.append((footprint, replicas - placed))
                break
    return PackedNodes(nodes.left, unplaced)


class _FreeNodes:
    """Nodes by the GPUs that stay free on them. The names per free count are a heap, whose stale
    entries (the node has another free count now) are skipped."""

    def __init__(self, free: Mapping[str, int], domains: Domains | None) -> None:
        self.left = dict(free)
        self._domains = domains
        self._blocks: dict[int, list[str]] = {}
        for name, count in sorted(self.left.items()):
            self._blocks.setdefault(count, []).append(name)  # sorted, so each list is a heap

    def place(self, footprint: Footprint, superseded_gpus: dict[str, int]) -> bool:
        """Take the GPUs of one replica, first those that its predecessors hold; False where it has
        no place."""
        if footprint.nodes > 1:
            return self._take_on_several(footprint, superseded_gpus)
        gpus = footprint.gpus_per_node
        return self._take_superseded(superseded_gpus, gpus) or self._take(gpus)

    def _take_on_several(self, footprint: Footprint, superseded_gpus: dict[str, int]) -> bool:
        """Take GPUs of as many different nodes as the replica needs, in the domain with the most of
        its predecessors' GPUs, else in the smallest one that has so many; False where none has."""
        gpus = footprint.gpus_per_node
        by_domain: dict[str, list[tuple[int, int, int, str]]] = {}
        for name, free in self.left.items():
            held = superseded_gpus.get(name, 0)
            domain = "" if self._domains is None else self._domains[name]
            if free + held >= gpus and domain is not None:
                additional = max(0, gpus - held)
                node = additional, -footprint.pods_on(free), free, name
                by_domain.setdefault(domain, []).append(node)
        enough = [
            (sum(node[0] for node in heapq.nsmallest(footprint.nodes, nodes)), len(nodes), domain)
            for domain, nodes in by_domain.items()
            if len(nodes) >= footprint.nodes
        ]
        if not enough:
            return False
        *_, domain = min(enough)
        for additional, _, _, name in heapq.nsmallest(footprint.nodes, by_domain[domain]):
            if additional < gpus:
                superseded_gpus[name] -= gpus - additional
            if additional:
                self._take_from(name, additional)
        return True

    def _take(self, gpus: int) -> bool:
        """Take GPUs of the node with the smallest sufficient block; False when there is none."""
        for size in sorted(size for size in self._blocks if size >= gpus):
            names = self._blocks[size]
            while names and self.left[names[0]] != size:
                heapq.heappop(names)
            if names:
                self._take_from(names[0], gpus)
                return True
        return False

    def _take_superseded(self, superseded_gpus: dict[str, int], gpus: int) -> bool:
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
