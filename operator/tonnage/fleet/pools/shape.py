"""The shape of a pool: its devices and its selector, whatever GPUs are free.

It depends on the classes of the group's nodes and the nodes per class. Another node of an existing
class leaves it as it is.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tonnage.api.pool import Allocation
from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.dra_drivers import load_dra_drivers
from tonnage.catalog.interconnects import load_interconnects
from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.images import CudaVersion
from tonnage.fleet.devices.label_index import PARTITION
from tonnage.fleet.devices.recognize import Recognised, Recogniser, Unrecognised
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.fleet.model import DeclaredPool, Node, Partition, Taint
from tonnage.fleet.nodes.label_selectors import Selector, selector_of
from tonnage.fleet.nodes.node_class import DESCRIPTIVE_LABELS, NodeClass
from tonnage.fleet.nodes.taints import is_gpu_node_taint

HOW_TO_DECLARE: Final = (
    "declare an AcceleratorPool that selects these nodes and names spec.accelerator"
)

_NO_GPUS: Final = "selects no node with GPUs; set spec.accelerator if the nodes are starting"

NodesPerClass = Mapping[NodeClass, int]
"""The classes of a group's nodes, and how many nodes each has."""

FirstNode = Callable[[str], str]
"""Returns the name of the group's first node that is not recognised for this reason."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The devices of a group, and the labels that select it. `accelerator` is None where nothing
    can be planned on the nodes together; `unrecognised` says why. `absent` are labels that none of
    the nodes has, `cuda` is the CUDA version that all their drivers support, as far as labels say,
    and `notes` are further remarks on some of the nodes. `networks` are the adapters of known
    networks that each node has at least, by resource, `domain_label` the label by which each node
    names its NVLink domain. `aligned` are attributes that the GPUs of
    every node state in ResourceSlices, with the most GPUs of one node that share a value."""

    resource: str
    accelerator: Accelerator | None
    node_selector: Selector
    virtual_function: bool = False
    partition: Partition | None = None
    absent: tuple[str, ...] = ()
    cuda: CudaVersion | None = None
    notes: tuple[str, ...] = ()
    unrecognised: str | None = None
    networks: Mapping[str, int] = field(default_factory=dict)
    domain_label: str | None = None
    aligned: Mapping[str, int] = field(default_factory=dict)

    @property
    def device_bytes(self) -> int | None:
        """Memory of one device as torch sees it, None where it is not known."""
        if self.accelerator is None:
            return None
        if self.partition is not None:
            return self.partition.device_bytes
        if self.virtual_function:
            return self.accelerator.memory_bytes_vf
        return self.accelerator.memory_bytes


def shape_declared(
    pool: DeclaredPool, classes: NodesPerClass, recogniser: Recogniser, first_node: FirstNode
) -> Shape:
    """Return the shape of a declared pool with these nodes; it may have none."""
    declared, problem = _declared_accelerator(pool, recogniser.catalog)
    of_allocation = _of_one_allocation(pool, classes)
    problem = problem or _why_other_allocation(pool, classes, of_allocation)
    classes = of_allocation
    cards = _cards(classes)
    selected = _selected_accelerator(pool, recogniser)
    problem = problem or _why_not_plannable(pool, cards, classes, declared or selected, first_node)
    first = min(cards, key=_by_selector, default=None)
    accelerator = declared or (first.accelerator if first else selected)
    resource = first.resource if first else _unrecognised_resource(classes)
    return Shape(
        resource=resource or (_resource_to_come(pool, accelerator) if accelerator else ""),
        accelerator=None if problem else accelerator,
        virtual_function=any(card.virtual_function for card in cards),
        partition=_partition(cards),
        cuda=_oldest_cuda(cards),
        notes=_notes(cards),
        node_selector=selector_of(pool.spec.node_selector),
        unrecognised=problem,
        networks=_common_networks(classes),
        domain_label=_common_domain_label(classes),
        aligned=_aligned(cards),
    )


def shape_known(classes: NodesPerClass) -> Shape:
    """Return the shape of nodes with the same devices that no declared pool selects."""
    cards = sorted(_cards(classes), key=_by_selector)
    selector: dict[str, tuple[str, ...]] = {}
    for card in cards:
        for key, values in card.selector:
            selector[key] = tuple(dict.fromkeys((*selector.get(key, ()), *values)))
    modes = {node_class.labels.get(PARTITION) for node_class in classes}
    first = cards[0]
    is_claimed = dra_driver_of(first.resource) is not None
    if None not in modes and not is_claimed:  # the same cards in another mode are in another pool
        selector[PARTITION] = tuple(sorted(mode for mode in modes if mode is not None))
    return Shape(
        resource=first.resource,
        accelerator=first.accelerator,
        virtual_function=first.virtual_function,
        partition=_partition(cards),
        absent=tuple(key for key in first.absent if all(key in card.absent for card in cards)),
        cuda=_oldest_cuda(cards),
        notes=_notes(cards),
        node_selector=selector,
        networks=_common_networks(classes),
        domain_label=_common_domain_label(classes),
        aligned=_aligned(cards),
    )


def shape_unknown(resource: str, classes: NodesPerClass, first_node: FirstNode) -> Shape:
    """Return the shape of nodes whose devices are unknown or cannot be planned on."""
    reason = _commonest_reason(classes, first_node) or ""
    declarable = any(
        isinstance(node_class.recognition, Unrecognised) and not node_class.recognition.in_parts
        for node_class in classes
    )
    return Shape(
        resource=resource,
        accelerator=None,
        node_selector=_common_label(classes),
        unrecognised=f"{reason}; {HOW_TO_DECLARE}" if declarable else reason,
    )


def gpu_node_taints(classes: Iterable[NodeClass]) -> tuple[Taint, ...]:
    """Return the nodes' taints that mark nothing but GPU nodes."""
    taints = {
        taint for node_class in classes for taint in node_class.taints if is_gpu_node_taint(taint)
    }
    return tuple(sorted(taints, key=lambda taint: (taint.key, taint.value, taint.effect)))


def _cards(classes: NodesPerClass) -> Sequence[Recognised]:
    recognitions = (node_class.recognition for node_class in classes)
    return [card for card in recognitions if isinstance(card, Recognised)]


def _partition(cards: Iterable[Recognised]) -> Partition | None:
    """Return the partition of devices in one mode; where labels differ in memory, the smallest."""
    partitions = [card.partition for card in cards if card.partition is not None]
    return min(partitions, key=lambda partition: partition.device_bytes, default=None)


def _oldest_cuda(cards: Iterable[Recognised]) -> CudaVersion | None:
    """Return the CUDA version that every driver supports, of those that can run an engine."""
    return min((card.cuda for card in cards if card.cuda and not card.unusable), default=None)


def _notes(cards: Iterable[Recognised]) -> tuple[str, ...]:
    return tuple(sorted({note for card in cards for note in card.notes}))


def _common_networks(classes: NodesPerClass) -> Mapping[str, int]:
    """Return the networks that all nodes have, with the fewest adapters of one node."""
    each = [node_class.networks for node_class in classes]
    common = set(each[0]).intersection(*each[1:]) if each else ()
    return {name: min(networks[name] for networks in each) for name in sorted(common)}


def _common_domain_label(classes: NodesPerClass) -> str | None:
    """Return the label of NVLink domains that all nodes have; None without one."""
    labels = load_interconnects().domain_labels if classes else ()
    return next((key for key in labels if all(one.labels.get(key) for one in classes)), None)


def _aligned(cards: Sequence[Recognised]) -> Mapping[str, int]:
    """Return the attributes that all nodes state, with the most GPUs that share a value."""
    each = [dict(card.aligned) for card in cards if card.unusable is None]
    common = set(each[0]).intersection(*each[1:]) if each else ()
    return {name: max(aligned[name] for aligned in each) for name in sorted(common)}


def _by_selector(card: Recognised) -> tuple[object, ...]:
    mode = card.partition.mode if card.partition else ""
    return card.accelerator.id, card.resource, mode, card.rank, card.selector


def _unrecognised_resource(classes: NodesPerClass) -> str:
    resources = (
        node_class.resource
        for node_class in classes
        if isinstance(node_class.recognition, Unrecognised)
    )
    return min(resources, default="")


def _of_one_allocation(pool: DeclaredPool, classes: NodesPerClass) -> NodesPerClass:
    """Return the classes whose nodes offer GPUs in the way that the pool states, else in the way of
    most nodes: by a device plugin, or in ResourceSlices. Those without a resource stay. Nodes that
    offer no GPUs, and which labels alone recognise, do not count: either software may be on its way
    there."""
    published = {each: dra_driver_of(each.resource) is not None for each in classes}
    votes = Counter[bool]()
    for node_class, count in classes.items():
        if published[node_class] or node_class.gpus:
            votes[published[node_class]] += count
    wanted = votes[True] > 0 and votes[True] >= votes[False]
    if pool.spec.allocation is not None:
        wanted = pool.spec.allocation is not Allocation.DEVICE_PLUGIN
    return {
        each: count
        for each, count in classes.items()
        if not each.resource or published[each] == wanted
    }


def _why_other_allocation(
    pool: DeclaredPool, classes: NodesPerClass, of_allocation: NodesPerClass
) -> str | None:
    """Why no node offers GPUs in the way that the pool states; None where one does."""
    others = {
        each.resource
        for each in classes
        if each not in of_allocation and (each.gpus or dra_driver_of(each.resource))
    }
    if not others or any(each.resource for each in of_allocation):
        return None
    offered = ", ".join(sorted(others))
    return (
        f"spec.allocation of AcceleratorPool {pool.name} is {pool.spec.allocation}, but its nodes "
        f"offer {offered}; correct it, or leave it out"
    )


def _resource_to_come(pool: DeclaredPool, accelerator: Accelerator) -> str:
    """The resource of the GPUs of nodes that are still to come, in the way that the pool states:
    by a device plugin where it states none."""
    drivers = load_dra_drivers()
    if pool.spec.allocation in (None, Allocation.DEVICE_PLUGIN):
        return accelerator.resource
    return next(
        drivers.resource_of(one) for one in drivers.drivers if one.vendor is accelerator.vendor
    )


def _declared_accelerator(
    pool: DeclaredPool, catalog: Catalog
) -> tuple[Accelerator | None, str | None]:
    """Return the accelerator that the pool names, or why the catalogue does not have it."""
    if pool.spec.accelerator is None:
        return None, None
    try:
        return catalog.accelerator(pool.spec.accelerator), None
    except UnknownAcceleratorError as error:
        return None, f"spec.accelerator of AcceleratorPool {pool.name}: {error}"


def _selected_accelerator(pool: DeclaredPool, recogniser: Recogniser) -> Accelerator | None:
    """Return the accelerator that the labels of spec.nodeSelector name: all nodes have them, also
    the first one that a node autoscaler adds. None where they name none."""
    labels = pool.spec.node_selector
    node = Node(pool.name, labels, taints=(), capacity={}, allocatable={}, unusable=None)
    card = recogniser.recognise(node)
    if not isinstance(card, Recognised) or card.partition is not None:
        return None
    return card.accelerator


def _why_not_plannable(
    pool: DeclaredPool,
    cards: Sequence[Recognised],
    classes: NodesPerClass,
    known: Accelerator | None,
    first_node: FirstNode,
) -> str | None:
    """Why nothing can be planned on a declared pool's nodes together; None when it can. `known` is
    the accelerator that the spec of the pool names."""
    counts: Counter[tuple[str, str]] = Counter()
    for node_class, count in classes.items():
        card = node_class.recognition
        if isinstance(card, Recognised):
            counts[card.accelerator.id, _devices(card)] += count
    if len(counts) > 1:
        listed = ", ".join(
            f"{accelerator} as {devices} on {count} nodes"
            for (accelerator, devices), count in sorted(counts.items())
        )
        return f"spec.nodeSelector of AcceleratorPool {pool.name} selects different GPUs: {listed}"
    if cards or pool.spec.accelerator is not None:
        return None
    unrecognised = _commonest_reason(classes, first_node)
    return unrecognised or (None if known else _NO_GPUS)


def _devices(card: Recognised) -> str:
    return f"{card.resource} ({card.partition.mode})" if card.partition else card.resource


def _commonest_reason(classes: NodesPerClass, first_node: FirstNode) -> str | None:
    """Why most nodes are not recognised, the first of them, and the number of other reasons."""
    reasons: Counter[str] = Counter()
    for node_class, count in classes.items():
        if isinstance(node_class.recognition, Unrecognised):
            reasons[node_class.recognition.reason] += count
    if not reasons:
        return None
    counted = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    reason, nodes = counted[0]
    others = len(counted) - 1
    more = {0: "", 1: " (and another cause)"}.get(others, f" (and {others} other causes)")
    return f"{first_node(reason)}{_format_others(nodes - 1)}: {reason}{more}"


def _format_others(nodes: int) -> str:
    return {0: "", 1: " and 1 other node"}.get(nodes, f" and {nodes} other nodes")


def _common_label(classes: NodesPerClass) -> Selector:
    """Return the most descriptive label that all nodes with an unknown card share."""
    for key in DESCRIPTIVE_LABELS:
        values = {node_class.labels.get(key) for node_class in classes}
        value = values.pop()
        if not values and value is not None:
            return {key: (value,)}
    return {"kubernetes.io/os": ("linux",)}  # the kubelet sets it on every node
