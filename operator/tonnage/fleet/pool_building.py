"""A pool as placement sees it, made of a group, what it is, and what is taken of it."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tonnage.api.names import LABEL_DISCOVERED, LABEL_MANAGED_BY, LABEL_SHARD, MANAGED_BY
from tonnage.api.shard import Shard
from tonnage.fleet.borders import Border
from tonnage.fleet.described import Described, Reasons
from tonnage.fleet.group import Group, Member
from tonnage.fleet.model import Pool
from tonnage.fleet.node_class import NodeClass
from tonnage.fleet.occupancy import PackedNodes, Successor, Waiting, pack_nodes
from tonnage.fleet.pool_nodes import NodeCounts, PoolNode, PoolNodes, as_blocks
from tonnage.fleet.shape import Shape, gpu_node_taints

DISCOVERED_LABELS: Final = {LABEL_DISCOVERED: "true", LABEL_MANAGED_BY: MANAGED_BY}
"""Labels of the AcceleratorPool that stands for nodes no declared pool selects."""


@dataclass(frozen=True, slots=True)
class Taken:
    """What is taken of a group: `waiting` replicas, `successors` of pods that are there, and by
    node the GPUs that are held there by pods which are to be left out of account."""

    waiting: Waiting = ()
    successors: Sequence[Successor] = ()
    left_out: Mapping[str, int] = field(default_factory=dict)


def build_pool(
    name: str,
    shard: Shard,
    group: Group,
    described: Described,
    border: Border,
    reasons: Reasons,
    taken: Taken,
) -> Pool:
    """The pool at this moment; later events do not change it."""
    shape, declared = described.shape, described.declared
    most = declared.spec.max_nodes if declared else None
    growth = max(0, most - len(group.members)) if most is not None else 0
    return Pool(
        name=name,
        accelerator=shape.accelerator,
        device_bytes=shape.device_bytes,
        resource=shape.resource,
        nodes=_nodes_of(group, shape, growth, reasons, taken),
        node_selector={**shape.node_selector, **_shard_selector(shard)},
        taints=gpu_node_taints(group.classes),
        declared=declared.spec if declared else None,
        labels=dict(declared.labels) if declared else {**DISCOVERED_LABELS, **shard.own_labels},
        unrecognised=shape.unrecognised,
        node_exclusion={
            **dict.fromkeys(shape.absent, ()),
            **border.exclusion,
            **_shard_exclusion(shard),
        },
        overlaps=border.overlaps,
        overlapped=border.overlapped,
        partition=shape.partition,
        cuda=shape.cuda,
        notes=shape.notes,
        growth=growth,
    )


def _shard_selector(shard: Shard) -> Mapping[str, tuple[str, ...]]:
    return {key: (name,) for key, name in shard.own_labels.items()}


def _shard_exclusion(shard: Shard) -> Mapping[str, tuple[str, ...]]:
    """What has no shard is kept off the nodes of all that have one."""
    return {LABEL_SHARD: ()} if shard.name is None else {}


def _nodes_of(group: Group, shape: Shape, growth: int, reasons: Reasons, taken: Taken) -> PoolNodes:
    members = dict(group.members)  # as they are at this moment

    def list_nodes() -> Iterator[PoolNode]:
        return _list_nodes(members, shape, reasons, taken)

    return PoolNodes(_count_nodes(group, shape, growth, reasons, taken), list_nodes)


def _count_nodes(
    group: Group, shape: Shape, growth: int, reasons: Reasons, taken: Taken
) -> NodeCounts:
    """What the nodes come to, told from their classes without a look at each node."""
    blocks: Counter[int] = Counter()
    total = usable = allocatable = largest = 0
    for kind, alike in group.classes.items():
        gpus = _gpus(kind, shape)
        total += gpus * alike.count
        largest = max(largest, gpus)
        if reasons[kind] is None:
            in_order = alike.in_order.total()
            usable += in_order
            allocatable += kind.allocatable * in_order
            blocks.update(alike.in_order)
    for name in taken.left_out:
        member = group.members[name]
        if _why_unusable(member, reasons) is None:
            blocks[member.free] -= 1
            blocks[_free(name, member, taken)] += 1
    counts = NodeCounts(
        nodes=len(group.members),
        usable=usable,
        total=total,
        allocatable=allocatable,
        largest_node=largest or _node_to_come(group, shape, growth),
        blocks=as_blocks(blocks),
    )
    grown = replace(counts, to_come=as_blocks({counts.largest_node: growth}))
    if not taken.successors:
        return grown.less(taken.waiting)
    packed = _pack_members(group.members, reasons, taken)
    left = replace(grown, blocks=as_blocks(Counter(packed.left.values())))
    return left.less_to_come(packed.unplaced)


def _node_to_come(group: Group, shape: Shape, growth: int) -> int:
    """GPUs of a node that an autoscaler adds to a pool without any: what the catalogue says."""
    if group.members or shape.accelerator is None or not growth:
        return 0
    return shape.accelerator.gpus_per_node or 0


def _list_nodes(
    members: Mapping[str, Member], shape: Shape, reasons: Reasons, taken: Taken
) -> Iterator[PoolNode]:
    """The nodes by name, with the replicas to come on those where they are expected."""
    free = _pack_members(members, reasons, taken).left
    for name, member in sorted(members.items()):
        kind, reason = member.kind, _why_unusable(member, reasons)
        yield PoolNode(
            name=name,
            gpus=_gpus(kind, shape),
            allocatable=0 if reason else kind.allocatable,
            free=free.get(name, 0),
            unusable=reason,
        )


def _pack_members(members: Mapping[str, Member], reasons: Reasons, taken: Taken) -> PackedNodes:
    """The replicas to come, packed onto the usable ones of the nodes by name."""
    free = {
        name: _free(name, member, taken)
        for name, member in members.items()
        if _why_unusable(member, reasons) is None
    }
    return pack_nodes(free, taken.waiting, taken.successors)


def _why_unusable(member: Member, reasons: Reasons) -> str | None:
    return member.unusable or reasons[member.kind]


def _free(name: str, member: Member, taken: Taken) -> int:
    used = member.used - taken.left_out.get(name, 0)
    return max(0, member.kind.allocatable - used)


def _gpus(kind: NodeClass, shape: Shape) -> int:
    """GPUs of the pool's resource that a node of the class has, usable or not."""
    return kind.gpus if kind.resource == shape.resource else 0
