"""What a group of nodes is as a pool, before anybody asks which of their GPUs are free.

It follows from the classes of the nodes and how many each has, so that nodes of the classes that
are there already come and go without a change.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog, UnknownAcceleratorError
from tonnage.catalog.images import CudaVersion
from tonnage.catalog.model import Accelerator
from tonnage.fleet.label_index import PARTITION
from tonnage.fleet.model import DeclaredPool, Partition, Taint
from tonnage.fleet.node_class import DESCRIBING, NodeClass
from tonnage.fleet.recognise import Recognised, Unrecognised
from tonnage.fleet.selecting import Selector, selector_of
from tonnage.fleet.taints import is_gpu_node_taint

HOW_TO_DECLARE: Final = (
    "declare an AcceleratorPool that selects these nodes and names spec.accelerator"
)

Kinds = Mapping[NodeClass, int]
"""The classes of a group's nodes, and how many nodes each has."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The devices of a group, and the labels that select it. `accelerator` is None where nothing
    can be planned on the nodes together; `unrecognised` says why. `absent` are labels that none of
    the nodes has, `cuda` is what the drivers of all of them support, as far as labels tell, and
    `notes` what else there is to say of some of them."""

    resource: str
    accelerator: Accelerator | None
    node_selector: Selector
    virtual_function: bool = False
    partition: Partition | None = None
    absent: tuple[str, ...] = ()
    cuda: CudaVersion | None = None
    notes: tuple[str, ...] = ()
    unrecognised: str | None = None

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


def shape_declared(pool: DeclaredPool, kinds: Kinds, catalog: Catalog) -> Shape:
    """The shape of a declared pool with these nodes, of which there may be none."""
    declared, problem = _declared_accelerator(pool, catalog)
    cards = _cards(kinds)
    problem = problem or _why_not_one_kind(pool, cards, kinds, declared)
    first = min(cards, key=_by_selector, default=None)
    accelerator = declared or (first.accelerator if first else None)
    resource = first.resource if first else _strangers_resource(kinds)
    return Shape(
        resource=resource or (accelerator.resource if accelerator else ""),
        accelerator=None if problem else accelerator,
        virtual_function=any(card.virtual_function for card in cards),
        partition=_partition(cards),
        cuda=_oldest_cuda(cards),
        notes=_notes(cards),
        node_selector=selector_of(pool.spec.node_selector),
        unrecognised=problem,
    )


def shape_known(kinds: Kinds) -> Shape:
    """The shape of nodes with the same devices that nobody declared."""
    cards = sorted(_cards(kinds), key=_by_selector)
    selector: dict[str, tuple[str, ...]] = {}
    for card in cards:
        for key, values in card.selector:
            selector[key] = tuple(dict.fromkeys((*selector.get(key, ()), *values)))
    modes = {kind.labels.get(PARTITION) for kind in kinds}
    if None not in modes:  # the same cards in another mode are another pool's
        selector[PARTITION] = tuple(sorted(mode for mode in modes if mode is not None))
    first = cards[0]
    return Shape(
        resource=first.resource,
        accelerator=first.accelerator,
        virtual_function=first.virtual_function,
        partition=_partition(cards),
        absent=tuple(key for key in first.absent if all(key in card.absent for card in cards)),
        cuda=_oldest_cuda(cards),
        notes=_notes(cards),
        node_selector=selector,
    )


def shape_unknown(resource: str, kinds: Kinds) -> Shape:
    """The shape of nodes whose devices are not known or nothing can be planned on."""
    reason = _commonest_reason(kinds) or ""
    declarable = any(
        isinstance(kind.recognition, Unrecognised) and not kind.recognition.in_parts
        for kind in kinds
    )
    return Shape(
        resource=resource,
        accelerator=None,
        node_selector=_describe(kinds),
        unrecognised=f"{reason}; {HOW_TO_DECLARE}" if declarable else reason,
    )


def gpu_node_taints(kinds: Iterable[NodeClass]) -> tuple[Taint, ...]:
    """The taints of the nodes that say only that these are GPU nodes."""
    found = {taint for kind in kinds for taint in kind.taints if is_gpu_node_taint(taint)}
    return tuple(sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect)))


def _cards(kinds: Kinds) -> Sequence[Recognised]:
    found = (kind.recognition for kind in kinds)
    return [card for card in found if isinstance(card, Recognised)]


def _partition(cards: Iterable[Recognised]) -> Partition | None:
    """The partition of devices in one mode; where labels differ in its memory the least counts."""
    found = [card.partition for card in cards if card.partition is not None]
    return min(found, key=lambda partition: partition.device_bytes, default=None)


def _oldest_cuda(cards: Iterable[Recognised]) -> CudaVersion | None:
    """What every driver supports on which vLLM runs at all."""
    return min((card.cuda for card in cards if card.cuda and not card.unusable), default=None)


def _notes(cards: Iterable[Recognised]) -> tuple[str, ...]:
    return tuple(sorted({note for card in cards for note in card.notes}))


def _by_selector(card: Recognised) -> tuple[object, ...]:
    mode = card.partition.mode if card.partition else ""
    return card.accelerator.id, card.resource, mode, card.rank, card.selector


def _strangers_resource(kinds: Kinds) -> str:
    resources = (kind.resource for kind in kinds if isinstance(kind.recognition, Unrecognised))
    return min(resources, default="")


def _declared_accelerator(
    pool: DeclaredPool, catalog: Catalog
) -> tuple[Accelerator | None, str | None]:
    """The accelerator that the pool names, or why there is none of that name."""
    if pool.spec.accelerator is None:
        return None, None
    try:
        return catalog.accelerator(pool.spec.accelerator), None
    except UnknownAcceleratorError as error:
        return None, f"spec.accelerator of AcceleratorPool {pool.name}: {error}"


def _why_not_one_kind(
    pool: DeclaredPool,
    cards: Sequence[Recognised],
    kinds: Kinds,
    declared: Accelerator | None,
) -> str | None:
    """Why nothing can be planned on a declared pool's nodes together; None when it can."""
    found: Counter[tuple[str, str]] = Counter()
    for kind, count in kinds.items():
        if isinstance(kind.recognition, Recognised):
            found[kind.recognition.accelerator.id, _devices(kind.recognition)] += count
    if len(found) > 1:
        several = ", ".join(
            f"{accelerator} as {devices} on {count} nodes"
            for (accelerator, devices), count in sorted(found.items())
        )
        return f"spec.nodeSelector of AcceleratorPool {pool.name} selects different GPUs: {several}"
    if not cards and declared is None:
        return _commonest_reason(kinds) or "selects no node with GPUs"
    return None


def _devices(card: Recognised) -> str:
    return f"{card.resource} ({card.partition.mode})" if card.partition else card.resource


def _commonest_reason(kinds: Kinds) -> str | None:
    """Why most nodes are not recognised, and how many other reasons there are."""
    reasons: Counter[str] = Counter()
    for kind, count in kinds.items():
        if isinstance(kind.recognition, Unrecognised):
            reasons[kind.recognition.reason] += count
    if not reasons:
        return None
    counted = sorted(reasons.items(), key=lambda item: (-item[1], item[0]))
    others = len(counted) - 1
    more = {0: "", 1: " (and another cause)"}.get(others, f" (and {others} other causes)")
    return counted[0][0] + more


def _describe(kinds: Kinds) -> Selector:
    """The label that best describes nodes whose card is unknown: what all of them have alike."""
    for key in DESCRIBING:
        values = {kind.labels.get(key) for kind in kinds}
        value = values.pop()
        if not values and value is not None:
            return {key: (value,)}
    return {"kubernetes.io/os": ("linux",)}  # the kubelet sets it on every node
