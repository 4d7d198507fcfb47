"""Builds the pool that placement uses from a group, its description and the demands on it."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from tonnage.api.names import LABEL_DISCOVERED, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from tonnage.api.shard import Shard
from tonnage.fleet.alignment import Alignment, Split, as_splits
from tonnage.fleet.model import ClaimRequest, Pool
from tonnage.fleet.nodes.node_class import NodeClass
from tonnage.fleet.pool_nodes import NodeCounts, PoolNode, PoolNodes, as_blocks, largest_size
from tonnage.fleet.pools.capacity import CapacityCounter, Demands
from tonnage.fleet.pools.description import GroupDescription, Reasons
from tonnage.fleet.pools.group import Group, Member
from tonnage.fleet.pools.packing import Packing
from tonnage.fleet.pools.separation import Separation
from tonnage.fleet.pools.shape import Shape
from tonnage.fleet.resources import UNKNOWN_SIZE, least

DISCOVERED_LABELS: Final = {LABEL_DISCOVERED: "true", LABEL_MANAGED_BY: MANAGED_BY}
"""Labels of the AcceleratorPool for nodes that no declared pool selects."""


def build_pool(
    name: str,
    shard: Shard,
    group: Group,
    description: GroupDescription,
    separation: Separation,
    reasons: Reasons,
    demands: Demands,
) -> Pool:
    """Build the pool as it is now; later events do not change it."""
    shape, declared = description.shape, description.declared
    max_nodes = declared.spec.max_nodes if declared else None
    network, claim = description.network, description.claim
    topology_key = network.topology_key if network else None
    packing = Packing(reasons, demands, topology_key, _alignment(claim))
    return Pool(
        name=name,
        accelerator=shape.accelerator,
        device_bytes=shape.device_bytes,
        resource=shape.resource,
        nodes=_nodes_of(group, shape, max_nodes, packing),
        node_selector={**shape.node_selector, **_shard_selector(shard)},
        taints=description.taints,
        declared=declared.spec if declared else None,
        labels=dict(declared.labels) if declared else {**DISCOVERED_LABELS, **shard.own_labels},
        unrecognised=shape.unrecognised,
        node_exclusion={
            **dict.fromkeys(shape.absent, ()),
            **separation.exclusion,
            **_shard_exclusion(shard),
        },
        overlaps=separation.overlaps,
        overlapped=separation.overlapped,
        partition=shape.partition,
        cuda=shape.cuda,
        notes=shape.notes,
        growth=_growth(group, max_nodes),
        network=network,
        networks=tuple(shape.networks),
        claim=claim,
    )


def _alignment(claim: ClaimRequest | None) -> Alignment | None:
    if claim is None or claim.aligned_by is None or claim.most_aligned < 2:
        return None
    return Alignment(claim.aligned_by, claim.most_aligned)


def _shard_selector(shard: Shard) -> Mapping[str, tuple[str, ...]]:
    return {key: (name,) for key, name in shard.own_labels.items()}


def _shard_exclusion(shard: Shard) -> Mapping[str, tuple[str, ...]]:
    """Keep pods of an unnamed shard off the nodes of all named shards."""
    return {LABEL_SHARD: ()} if shard.name is None else {}


def _growth(group: Group, max_nodes: int | None) -> int:
    """The nodes that an autoscaler may still add."""
    return 0 if max_nodes is None else max(0, max_nodes - len(group.members))


def _nodes_of(group: Group, shape: Shape, max_nodes: int | None, packing: Packing) -> PoolNodes:
    members = group.members.snapshot()
    counts = _count_nodes(group, shape, max_nodes, packing)
    if packing.topology_key is None:  # nodes to come are assumed in a domain of their own
        now, after = counts.split_waiting(packing.demands.waiting)
        if after:
            packing = replace(packing, demands=replace(packing.demands, waiting=now))
            counts = counts.less_to_come(after)
    counts = (
        _pack_by_name(counts, group, packing)
        if packing.by_name
        else counts.less(packing.demands.waiting)
    )

    def list_nodes() -> Iterator[PoolNode]:
        return _list_nodes(members, shape, max_nodes, packing)

    has_domains = packing.topology_key is not None
    if packing.by_name or packing.alignment is not None:
        return PoolNodes(counts, list_nodes, has_domains=has_domains)
    counter = CapacityCounter(members, packing.reasons, packing.demands)
    return PoolNodes(counts, list_nodes, counter.count, has_domains=has_domains)


def _count_nodes(group: Group, shape: Shape, max_nodes: int | None, packing: Packing) -> NodeCounts:
    """Count the nodes by their classes, without iterating over all nodes. Waiting replicas take
    nothing yet."""
    demands = packing.demands
    blocks: Counter[int] = Counter()
    splits: Counter[Split] = Counter()
    total = usable = allocatable = largest = 0
    spare = UNKNOWN_SIZE
    for node_class, counts in group.classes.items():
        gpus = _gpus(node_class, shape)
        total += gpus * counts.nodes
        largest = max(largest, gpus)
        if packing.reasons[node_class] is None:
            usable_of_class = counts.usable_by_free.total()
            usable += usable_of_class
            allocatable += node_class.allocatable * usable_of_class
            blocks.update(counts.usable_by_free)
            splits.update(counts.splits)
            spare = least((spare, *counts.spare_per_gpu))
    for name in demands.excluded_gpus:
        member = group.members[name]
        if packing.why_unusable(member) is None:
            blocks[member.free] -= 1
            blocks[demands.free(name, member)] += 1
            splits[member.split] -= 1
            splits[demands.split(name, member)] += 1
            spare = least((spare, demands.spare_per_gpu(name, member) or UNKNOWN_SIZE))
    to_come = _count_to_come(group, shape, max_nodes, largest)
    return NodeCounts(
        nodes=len(group.members),
        usable=usable,
        total=total,
        allocatable=allocatable,
        largest_node=largest or max(to_come, default=0),
        blocks=as_blocks(blocks),
        to_come=as_blocks(to_come),
        spare_per_gpu=spare,
        largest_size=largest_size(
            size for counts in group.classes.values() for size in counts.sizes
        ),
        alignment=packing.alignment,
        splits=as_splits(splits) if packing.alignment else (),
    )


def _pack_by_name(counts: NodeCounts, group: Group, packing: Packing) -> NodeCounts:
    """The counts after the waiting replicas are packed onto the nodes by name."""
    packed = packing.pack(group.members)
    left = replace(counts, blocks=as_blocks(Counter(packed.left.values())))
    if packing.alignment is not None:
        by_name = Counter(
            packing.split(name, group.members[name], free) for name, free in packed.left.items()
        )
        left = replace(left, splits=as_splits(by_name))
    return left.less_to_come(packed.unplaced)


def _count_to_come(group: Group, shape: Shape, max_nodes: int | None, largest: int) -> Counter[int]:
    """Count the nodes of a pool that may grow by the GPUs that they will offer: those that an
    autoscaler may still add, and those that are starting.

    The first node has as many GPUs as the catalogue states, later ones as many as the largest.
    """
    to_come: Counter[int] = Counter()
    if max_nodes is None:
        return to_come
    expected = largest or (shape.accelerator and shape.accelerator.gpus_per_node) or 0
    to_come[expected] += _growth(group, max_nodes)
    for node_class, counts in group.classes.items():
        to_come[_gpus(node_class, shape) or expected] += counts.starting
    return +to_come


def _list_nodes(
    members: Mapping[str, Member], shape: Shape, max_nodes: int | None, packing: Packing
) -> Iterator[PoolNode]:
    """List the nodes by name, less the GPUs assumed for unscheduled replicas."""
    left = packing.pack(members).left
    for name, member in sorted(members.items()):
        node_class, reason = member.node_class, packing.why_unusable(member)
        free = left.get(name, 0)
        yield PoolNode(
            name=name,
            gpus=_gpus(node_class, shape),
            allocatable=0 if reason else node_class.allocatable,
            free=free,
            unusable=reason,
            starting=member.starting and max_nodes is not None,
            size=member.size,
            spare=packing.demands.spare(name, member),
            domain=packing.domain_of(member),
            alignment=packing.alignment,
            split=packing.split(name, member, free) if packing.alignment else (),
        )


def _gpus(node_class: NodeClass, shape: Shape) -> int:
    """GPUs of the pool's resource on a node of the class, usable or not."""
    return node_class.gpus if node_class.resource == shape.resource else 0
