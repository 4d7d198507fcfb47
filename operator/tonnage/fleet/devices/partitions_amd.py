"""AMD's compute partitions: the mode of the devices behind a resource, and what one of them is.

The resource (amd.com/cpx_nps4, naming strategy mixed) or an optional label of the node labeller
names the mode. Without either, the compute units and the memory of one device identify it, because
a partition has an even share of both. All sources have to agree.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.fleet.devices.label_index import CU_COUNT, PARTITION, SIMD_COUNT, VRAM, CardLabel
from tonnage.fleet.devices.resources import NotPlannableError, read_count
from tonnage.fleet.model import Partition

_MODE: Final = re.compile(r"(?P<compute>[sdtqc]px)_(?P<memory>nps[0-9])")
_WHOLE: Final = "spx"
_MODE_OF_WHOLE: Final = "spx_nps1"
_GIB: Final = 1024**3
_PARTS_OF_WHOLE: Final = 1


@dataclass(frozen=True, slots=True)
class _NamedMode:
    """A mode and its source, the resource or a label, as messages show it."""

    mode: str
    source: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """A whole GPU and the memory that it has on this node, None where that is unknown."""

    accelerator: Accelerator
    memory_bytes: int | None


def amd_partition(resource: str, gpu: Gpu, cards: Sequence[CardLabel]) -> Partition | None:
    """Return the partition that one device is, None for a whole GPU.

    Raises NotPlannableError for modes that the card does not have and for contradicting labels.
    """
    named = _find_mode(resource, cards)
    if named is None:
        parts = _parts_by_size(gpu, cards)
        mode = _mode_of(gpu.accelerator, parts)
    else:
        parts, mode = _parts_by_mode(gpu.accelerator, named), named.mode
        _check_size(gpu, cards, parts, named)
    if parts == _PARTS_OF_WHOLE:
        return None
    if gpu.memory_bytes is None:
        raise NotPlannableError(
            f"{named.source if named else cards[0]}: the memory of a partition of "
            f"{gpu.accelerator.id} "
            "is not known",
            in_parts=True,
        )
    return Partition(mode, gpu.memory_bytes // parts, 1 / parts)


def _find_mode(resource: str, cards: Iterable[CardLabel]) -> _NamedMode | None:
    """Return the mode that the resource and the labels name, None where none does."""
    modes = [_NamedMode(card.value.lower(), str(card)) for card in cards if card.kind == PARTITION]
    name = resource.partition("/")[2]
    if _MODE.fullmatch(name):
        modes.append(_NamedMode(name, f"offers {resource}"))
    for other in modes[1:]:
        if other.mode != modes[0].mode:
            sources = f"{modes[0].source}, {other.source}"
            raise NotPlannableError(f"modes contradict: {sources}", in_parts=True)
    return modes[0] if modes else None


def _parts_by_mode(accelerator: Accelerator, named: _NamedMode) -> int:
    """Return the devices per GPU in the named mode."""
    if named.mode == _MODE_OF_WHOLE:
        return _PARTS_OF_WHOLE
    match = _MODE.fullmatch(named.mode)
    by_mode = {partition.mode: partition for partition in accelerator.compute_partitions}
    partition = by_mode.get(match["compute"]) if match else None
    if match is None or partition is None or match["memory"] not in partition.memory_modes:
        modes = [f"{mode}_{nps}" for mode in by_mode for nps in by_mode[mode].memory_modes]
        has = ", ".join([_MODE_OF_WHOLE, *modes])
        raise NotPlannableError(
            f"{named.source}: {accelerator.id} has no such mode, only {has}", in_parts=True
        )
    return partition.parts


def _check_size(gpu: Gpu, cards: Iterable[CardLabel], parts: int, named: _NamedMode) -> None:
    """Raise NotPlannableError where a device's units or memory are not those of the mode."""
    for card in cards:
        possible = _possible_parts(card, gpu)
        if possible is not None and parts not in possible:
            whole = f"{gpu.accelerator.id} has {_size_of(gpu, card.kind)}"
            shared = f", here in {parts} devices" if parts > _PARTS_OF_WHOLE else ""
            raise NotPlannableError(
                f"{card} contradicts {named.source}: {whole}{shared}", in_parts=True
            )


def _parts_by_size(gpu: Gpu, cards: Sequence[CardLabel]) -> int:
    """Return the fewest devices per GPU that all labels allow, 1 if no label states a size."""
    common, first = None, None
    for card in cards:
        possible = _possible_parts(card, gpu)
        if possible is None:
            continue
        if not possible:
            has = _size_of(gpu, card.kind)
            raise NotPlannableError(f"{card} contradicts {gpu.accelerator.id}, which has {has}")
        both = possible if common is None else common & possible
        if not both:
            raise NotPlannableError(f"labels contradict: {first}, {card}", in_parts=True)
        common, first = both, first or card
    return min(common) if common else _PARTS_OF_WHOLE


def _possible_parts(card: CardLabel, gpu: Gpu) -> frozenset[int] | None:
    """Return the devices per GPU that a label on one device's size allows; None for others."""
    possible = (_PARTS_OF_WHOLE, *(mode.parts for mode in gpu.accelerator.compute_partitions))
    if card.kind in (CU_COUNT, SIMD_COUNT):
        whole, count = _catalogued_count(card.kind, gpu.accelerator), read_count(card.value) or 0
        return None if whole is None else frozenset(n for n in possible if count * n == whole)
    if card.kind == VRAM and gpu.memory_bytes is not None:
        gib, memory = read_count(card.value.removesuffix("G")), gpu.memory_bytes
        return frozenset(n for n in possible if gib == round(memory / n / _GIB))
    return None


def _size_of(gpu: Gpu, kind: str) -> str:
    """Format the whole GPU's amount of what a label counts."""
    if kind == VRAM:
        return f"{round((gpu.memory_bytes or 0) / _GIB)} GiB"
    units = "compute units" if kind == CU_COUNT else "SIMDs"
    return f"{_catalogued_count(kind, gpu.accelerator)} {units}"


def _catalogued_count(kind: str, accelerator: Accelerator) -> int | None:
    values = (match.values for match in accelerator.matches if match.label == kind)
    return next((read_count(value) for value, *_ in values), None)


def _mode_of(accelerator: Accelerator, parts: int) -> str:
    """Return the compute mode with this many parts; its memory mode is unknown and irrelevant."""
    by_parts = {partition.parts: partition.mode for partition in accelerator.compute_partitions}
    return by_parts.get(parts, _WHOLE)
