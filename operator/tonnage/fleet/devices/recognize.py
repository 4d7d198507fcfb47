"""Recognises the devices of a node by its labels, its ResourceSlices and its resources, and never
guesses.

All labels that name a card have to agree; labels that fit several cards identify none. A prefix is
never enough (MI308X is not MI300X), nor is the amount of memory.

A node may offer several resources at once: whole GPUs and MIG devices, or partitions in several
modes. Each is recognised separately. The node then belongs to the resource with the most memory,
and its notes name the others.

A node whose labels state GPUs and that offers none has no device plugin, or not yet. It is
recognised by its labels and unusable, so that its pool shows what is missing.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.catalog.vllm.images import CudaVersion, VendorImage
from tonnage.fleet.devices.identify import (
    Identified,
    identify,
    is_virtual_function,
    labelled_vendor,
)
from tonnage.fleet.devices.image_support import driver_cuda, why_no_image
from tonnage.fleet.devices.label_index import (
    CardLabel,
    LabelIndex,
    index_labels,
    read_card_labels,
    show_label,
)
from tonnage.fleet.devices.node_selectors import (
    ANY_LINUX_NODE,
    Selection,
    absent_labels,
    selector_for,
)
from tonnage.fleet.devices.partition_checks import refuse_parts
from tonnage.fleet.devices.partitions_amd import Gpu, amd_partition
from tonnage.fleet.devices.partitions_mig import find_mig, mig_partition
from tonnage.fleet.devices.published import (
    add_facts,
    check_published,
    explain_unidentified,
    is_named,
    published_as,
)
from tonnage.fleet.devices.resources import (
    ContradictionError,
    NotPlannableError,
    UnlabelledError,
    dra_driver_of,
    read_count,
    vendor_of,
    whole_gpus,
)
from tonnage.fleet.devices.sharing import refuse_shared
from tonnage.fleet.model import Node, Partition, PublishedGPUs

_MAX_RECOGNITIONS: Final = 4096
"""Cached recognitions of different nodes. Beyond that, labels must differ from node to node."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """Devices of a known accelerator, partitions of GPUs where `partition` is set.

    `selector` are the labels that distinguish such nodes from others, the most specific first;
    `rank` is its place among all labels, `absent` are labels that such nodes do not have and others
    may. `cuda` is the version that the node's driver supports, None when unknown. `unusable` says
    why vLLM cannot run on such a node (its driver, its processor, no device plugin), `notes` name
    resources that nothing is planned on. `aligned` are attributes of ResourceSlices with the most
    usable GPUs of such a node that share one value.
    """

    resource: str
    accelerator: Accelerator
    virtual_function: bool
    selector: Selection = ()
    rank: int = 0
    absent: tuple[str, ...] = ()
    partition: Partition | None = None
    cuda: CudaVersion | None = None
    unusable: str | None = None
    notes: tuple[str, ...] = ()
    aligned: tuple[tuple[str, int], ...] = ()

    @property
    def device_bytes(self) -> int | None:
        """Memory of one device as torch reports it, None when unknown."""
        if self.partition is not None:
            return self.partition.device_bytes
        return _memory_of(self.accelerator, virtual=self.virtual_function)


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """GPUs that nothing is planned on, and why. `in_parts`: shares or broken parts of GPUs, which
    no declaration makes plannable. `unlabelled`: no label names the card, or not yet."""

    resource: str
    reason: str
    in_parts: bool = False
    unlabelled: bool = False


Recognition = Recognised | Unrecognised


class Recogniser:
    """Recognises nodes, and caches the results: many nodes of a cluster are the same."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._index = index_labels(catalog)
        self._recognitions: dict[object, Recognition | None] = {}

    def recognise(self, node: Node, declared: Accelerator | None = None) -> Recognition | None:
        """Recognise the devices of a node, None when it offers no GPU and no label states one.

        A declared accelerator replaces labels that do not name the card, but not labels of shared
        or partitioned GPUs, or of another card.
        """
        key = (
            frozenset(item for item in node.labels.items() if self._index.matters(item[0])),
            *node.capacity.items(),
            *node.allocatable.items(),
            node.published,
            declared and declared.id,
        )
        if key not in self._recognitions:
            if len(self._recognitions) >= _MAX_RECOGNITIONS:
                self._recognitions.clear()
            self._recognitions[key] = _recognise(node, self._index, declared)
        return self._recognitions[key]


def offered(node: Node, resource: str) -> int:
    """Units of a resource that a node has, usable or not."""
    return max(node.capacity.get(resource, 0), node.allocatable.get(resource, 0))


def offered_gpus(node: Node) -> dict[str, int]:
    """GPUs of a node by resource, usable or not."""
    resources = sorted({*node.capacity, *node.allocatable})
    counts = {resource: offered(node, resource) for resource in resources}
    return {resource: count for resource, count in counts.items() if count > 0}


def _recognise(node: Node, index: LabelIndex, declared: Accelerator | None) -> Recognition | None:
    counts = offered_gpus(node)
    if not counts:
        return _recognise_unoffered(node, index, declared)
    if len({vendor_of(resource) for resource in counts}) > 1:
        listed = " and ".join(f"{resource} ({count})" for resource, count in counts.items())
        reason = f"offers {listed} at once; keep one vendor's GPUs and device plugin on a node"
        return Unrecognised(next(iter(counts)), reason)
    recognitions = [_recognise_resource(node, resource, index, declared) for resource in counts]
    recognised = [each for each in recognitions if isinstance(each, Recognised)]
    if not recognised:
        return next(each for each in recognitions if isinstance(each, Unrecognised))
    best = max(recognised, key=lambda each: _memory_offered(node, each))
    return replace(best, notes=(*best.notes, *_notes(node, best, recognitions)))


def _recognise_unoffered(
    node: Node, index: LabelIndex, declared: Accelerator | None
) -> Recognition | None:
    """Recognise a node without GPUs by why its ResourceSlices list none, else by its labels."""
    for published in node.published:
        if published.refused is not None:
            return Unrecognised(published.resource, published.refused, in_parts=True)
    return _recognise_by_labels(node, index, declared)


def _recognise_by_labels(
    node: Node, index: LabelIndex, declared: Accelerator | None
) -> Recognition | None:
    """Recognise a node that offers no GPU by what its labels state; None where they state none."""
    for resource in map(whole_gpus, Vendor):
        labelled = labelled_vendor(
            read_card_labels(node.labels, resource, index), index, node.labels
        )
        if labelled is None or whole_gpus(labelled[0]) != resource:
            continue
        missing = f"has {labelled[1]} but offers no {resource} (is the device plugin running?)"
        recognition = _recognise_resource(node, resource, index, declared)
        if isinstance(recognition, Recognised):
            return replace(recognition, unusable=missing)
        return replace(recognition, reason=f"{missing}, and {recognition.reason}")
    return None


def _recognise_resource(
    node: Node, resource: str, index: LabelIndex, declared: Accelerator | None
) -> Recognition:
    """Recognise the devices behind one resource."""
    try:
        return _devices(node, resource, index, declared)
    except NotPlannableError as refusal:
        unlabelled = isinstance(refusal, UnlabelledError)
        return Unrecognised(resource, refusal.reason, refusal.in_parts, unlabelled)


def _devices(
    node: Node, resource: str, index: LabelIndex, declared: Accelerator | None
) -> Recognised:
    count, labels = offered(node, resource), node.labels
    published = published_as(node, resource)
    if published is None and vendor_of(resource) is Vendor.NVIDIA:
        refuse_shared(resource, count, labels)
    cards = read_card_labels(labels, resource, index)
    if published is not None:
        cards = add_facts(cards, published, index)
    identified = _identify(cards, index, resource, declared, node)
    accelerator, needed = identified.accelerator, identified.needed
    virtual = is_virtual_function(cards, index, labels)
    partition = _partition(resource, accelerator, cards, labels, virtual=virtual)
    if partition is None:
        refuse_parts(accelerator, count, cards)
    image = index.catalog.images[accelerator.vendor]
    cuda = driver_cuda(labels, image)
    if published is not None:
        check_published(published, accelerator, labels, cuda)
        return _published_devices(published, identified, virtual, partition, cuda, node, image)
    return Recognised(
        resource=resource,
        accelerator=accelerator,
        virtual_function=virtual,
        selector=selector_for(identified, resource, cards, labels, index),
        rank=index.identifying.index(needed[0].kind) if needed else 0,
        absent=absent_labels(identified, labels),
        partition=partition,
        cuda=cuda,
        unusable=why_no_image(accelerator, cuda, labels, image),
    )


def _published_devices(
    published: PublishedGPUs,
    identified: Identified,
    virtual: bool,
    partition: Partition | None,
    labelled_cuda: CudaVersion | None,
    node: Node,
    image: VendorImage,
) -> Recognised:
    """GPUs of ResourceSlices. A claim selects them by their attributes, so the pool needs none of
    the labels that nodes may have, or get."""
    cuda = published.cuda or labelled_cuda
    unusable = published.unusable or why_no_image(identified.accelerator, cuda, node.labels, image)
    return Recognised(
        resource=published.resource,
        accelerator=identified.accelerator,
        virtual_function=virtual,
        selector=ANY_LINUX_NODE,
        partition=partition,
        cuda=cuda,
        unusable=unusable,
        notes=published.notes,
        aligned=published.aligned,
    )


def _identify(
    cards: Sequence[CardLabel],
    index: LabelIndex,
    resource: str,
    declared: Accelerator | None,
    node: Node,
) -> Identified:
    """Return the declared accelerator or the one that the labels name; both must be the same."""
    vendor, published = vendor_of(resource), published_as(node, resource)
    try:
        identified = identify(cards, index, vendor, node.labels)
    except NotPlannableError as refusal:
        if published is not None and isinstance(refusal, UnlabelledError):
            refusal = NotPlannableError(explain_unidentified(published))
        if declared is None or isinstance(refusal, ContradictionError):
            raise refusal from None
        identified = Identified(declared, ())
    accelerator, needed = identified.accelerator, identified.needed
    if accelerator.vendor is not vendor:
        claim = f"labels contradict: {needed[0]} is" if needed else "the pool declares"
        raise ContradictionError(f"{claim} {accelerator.id}, the node offers {resource}")
    if declared is not None and accelerator is not declared:
        raise ContradictionError(
            f"{needed[0]} is {accelerator.id}, the pool declares {declared.id}: correct "
            "spec.accelerator, or leave it out"
        )
    if declared is None and published and not is_named(published, accelerator, index):
        raise NotPlannableError(explain_unidentified(published))
    return identified


def _partition(
    resource: str,
    accelerator: Accelerator,
    cards: Sequence[CardLabel],
    labels: Mapping[str, str],
    *,
    virtual: bool,
) -> Partition | None:
    """Return the partition that a device is, None for a whole GPU."""
    if accelerator.vendor is Vendor.AMD:
        gpu = Gpu(accelerator, _memory_of(accelerator, virtual=virtual))
        return amd_partition(resource, gpu, cards)
    mig = find_mig(resource, labels)
    return mig_partition(mig, resource, accelerator, labels) if mig else None


def _memory_of(accelerator: Accelerator, *, virtual: bool) -> int | None:
    return accelerator.memory_bytes_vf if virtual else accelerator.memory_bytes


def _memory_offered(node: Node, card: Recognised) -> tuple[int, int, int]:
    """Return bytes of all devices behind a resource, allocatable and in total, then bytes of one:
    of equal totals, larger devices are better."""
    device_bytes = card.device_bytes or 0
    allocatable = node.allocatable.get(card.resource, 0)
    count = offered(node, card.resource)
    return allocatable * device_bytes, count * device_bytes, device_bytes


def _notes(node: Node, best: Recognised, recognitions: Sequence[Recognition]) -> tuple[str, ...]:
    """Note the node's other resources, and labels that count more than its device plugin."""
    notes = []
    for other in recognitions:
        if other.resource == best.resource:
            continue
        count = offered(node, other.resource)
        why = other.reason if isinstance(other, Unrecognised) else "a node belongs to one resource"
        notes.append(f"{other.resource} ({count}) is left out: {why}")
    is_published = dra_driver_of(best.resource) is not None
    counted = whole_gpus(best.accelerator.vendor) if is_published else best.resource
    key = f"{counted}.count"
    labelled, count = read_count(node.labels.get(key)), offered(node, best.resource)
    if labelled is not None and labelled > count and len(recognitions) == 1:
        by = "the ResourceSlices list" if is_published else "the device plugin offers"
        notes.append(f"{show_label(key, node.labels[key])}, but {by} {count}")
    return tuple(notes)
