"""Which devices a node offers, told from its labels and resources and never guessed.

Every label that names a card has to agree; a card that several labels could mean is no card. A
prefix is never enough (MI308X is not MI300X), nor is the amount of memory.

A node may offer several resources at once: whole GPUs and MIG devices, or partitions in several
modes. Each is judged by itself. The node then belongs to the one with the most memory, and what
else it offers is noted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.images import CudaVersion
from tonnage.catalog.model import Accelerator, Vendor
from tonnage.fleet.identify import Identified, identify, is_virtual_function
from tonnage.fleet.image_support import driver_cuda, why_no_image
from tonnage.fleet.label_index import (
    CardLabel,
    LabelIndex,
    index_labels,
    read_card_labels,
    show_label,
)
from tonnage.fleet.model import Node, Partition
from tonnage.fleet.partitions_amd import Gpu, amd_partition
from tonnage.fleet.partitions_mig import find_mig, mig_partition
from tonnage.fleet.refusal import ContradictionError, NotPlannableError
from tonnage.fleet.resources import read_count, vendor_of
from tonnage.fleet.sharing import refuse_shared
from tonnage.fleet.telling_apart import Selection, absent_labels, selector_for
from tonnage.fleet.whole import refuse_parts

_MAX_ANSWERS: Final = 4096
"""Different kinds of nodes to be remembered; beyond it labels must differ from node to node."""


@dataclass(frozen=True, slots=True)
class Recognised:
    """Devices of a known kind, parts of GPUs where `partition` says so.

    `selector` are the labels that tell such nodes from others, the one that identifies best first;
    `rank` is its place among all, `absent` are labels that such nodes do not have and others may.
    `cuda` is what the node's driver supports, None when not known. `unusable` says why no vLLM runs
    on such a node all the same (its driver, its processor), `notes` what else there is to say of
    it: resources that nothing is planned on.
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

    @property
    def device_bytes(self) -> int | None:
        """Memory of one device as torch sees it, None when not known."""
        if self.partition is not None:
            return self.partition.device_bytes
        return _memory_of(self.accelerator, virtual=self.virtual_function)


@dataclass(frozen=True, slots=True)
class Unrecognised:
    """GPUs that nothing is planned on, and why. `in_parts`: shares or broken parts of GPUs, which
    no declaration makes plannable."""

    resource: str
    reason: str
    in_parts: bool = False


Recognition = Recognised | Unrecognised


class Recogniser:
    """Recognises nodes; those of a cluster are alike, so answers are kept."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._index = index_labels(catalog)
        self._answers: dict[object, Recognition | None] = {}

    def recognise(self, node: Node, declared: Accelerator | None = None) -> Recognition | None:
        """What a node carries, None when it offers no GPU at all.

        A declared accelerator stands in for labels that do not name the card; that a GPU is
        shared, divided or another one is true all the same.
        """
        alike = (
            frozenset(item for item in node.labels.items() if self._index.matters(item[0])),
            *node.capacity.items(),
            *node.allocatable.items(),
            declared and declared.id,
        )
        if alike not in self._answers:
            if len(self._answers) >= _MAX_ANSWERS:
                self._answers.clear()
            self._answers[alike] = _recognise(node, self._index, declared)
        return self._answers[alike]


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
        return None
    if len({vendor_of(resource) for resource in counts}) > 1:
        listed = " and ".join(f"{resource} ({count})" for resource, count in counts.items())
        both = f"offers {listed} at once; keep one vendor's GPUs and device plugin on a node"
        return Unrecognised(next(iter(counts)), both)
    judged = [_judge(node, resource, index, declared) for resource in counts]
    recognised = [found for found in judged if isinstance(found, Recognised)]
    if not recognised:
        return next(found for found in judged if isinstance(found, Unrecognised))
    best = max(recognised, key=lambda found: _memory_offered(node, found))
    return replace(best, notes=_notes(node, best, judged))


def _judge(
    node: Node, resource: str, index: LabelIndex, declared: Accelerator | None
) -> Recognition:
    """What the devices behind one resource are."""
    try:
        return _devices(node, resource, index, declared)
    except NotPlannableError as refusal:
        return Unrecognised(resource, refusal.reason, refusal.in_parts)


def _devices(
    node: Node, resource: str, index: LabelIndex, declared: Accelerator | None
) -> Recognised:
    count, labels = offered(node, resource), node.labels
    if vendor_of(resource) is Vendor.NVIDIA:
        refuse_shared(resource, count, labels)
    cards = read_card_labels(labels, resource, index)
    identified = _identify(cards, index, resource, declared, labels)
    accelerator, needed = identified.accelerator, identified.needed
    virtual = is_virtual_function(cards, index, labels)
    partition = _partition(resource, accelerator, cards, labels, virtual=virtual)
    if partition is None:
        refuse_parts(accelerator, count, cards)
    image = index.catalog.images[accelerator.vendor]
    cuda = driver_cuda(labels, image)
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


def _identify(
    cards: Sequence[CardLabel],
    index: LabelIndex,
    resource: str,
    declared: Accelerator | None,
    labels: Mapping[str, str],
) -> Identified:
    """The declared accelerator or the one that the labels name, which must not be another one."""
    vendor = vendor_of(resource)
    try:
        identified = identify(cards, index, vendor, labels)
    except NotPlannableError as refusal:
        if declared is None or isinstance(refusal, ContradictionError):
            raise
        identified = Identified(declared, ())
    accelerator, needed = identified.accelerator, identified.needed
    if accelerator.vendor is not vendor:
        told = f"labels contradict: {needed[0]} is" if needed else "the pool declares"
        raise ContradictionError(f"{told} {accelerator.id}, the node offers {resource}")
    if declared is not None and accelerator is not declared:
        raise ContradictionError(
            f"{needed[0]} is {accelerator.id}, the pool declares {declared.id}: correct "
            "spec.accelerator, or leave it out"
        )
    return identified


def _partition(
    resource: str,
    accelerator: Accelerator,
    cards: Sequence[CardLabel],
    labels: Mapping[str, str],
    *,
    virtual: bool,
) -> Partition | None:
    """What a device is where it is a part of a GPU."""
    if accelerator.vendor is Vendor.AMD:
        gpu = Gpu(accelerator, _memory_of(accelerator, virtual=virtual))
        return amd_partition(resource, gpu, cards)
    mig = find_mig(resource, labels)
    return mig_partition(mig, resource, accelerator, labels) if mig else None


def _memory_of(accelerator: Accelerator, *, virtual: bool) -> int | None:
    return accelerator.memory_bytes_vf if virtual else accelerator.memory_bytes


def _memory_offered(node: Node, found: Recognised) -> tuple[int, int, int]:
    """Memory of all devices behind a resource: what can be allocated, and what there is; of equal
    ones the larger devices are better."""
    device_bytes = found.device_bytes or 0
    allocatable = node.allocatable.get(found.resource, 0)
    count = offered(node, found.resource)
    return allocatable * device_bytes, count * device_bytes, device_bytes


def _notes(node: Node, best: Recognised, judged: Sequence[Recognition]) -> tuple[str, ...]:
    """What else the node offers, and where its labels count more than its device plugin offers."""
    notes = []
    for other in judged:
        if other.resource == best.resource:
            continue
        count = offered(node, other.resource)
        why = other.reason if isinstance(other, Unrecognised) else "a node belongs to one resource"
        notes.append(f"{other.resource} ({count}) is left out: {why}")
    key = f"{best.resource}.count"
    told, count = read_count(node.labels.get(key)), offered(node, best.resource)
    if told is not None and told > count and len(judged) == 1:
        notes.append(f"{show_label(key, node.labels[key])}, but the device plugin offers {count}")
    return tuple(notes)
