"""AMD's compute partitions: the mode of the devices behind a resource, and what one of them is.

The mode is told by the resource (amd.com/cpx_nps4, naming strategy mixed) or by a label of the node
labeller, which is an option of it. Where neither tells, the compute units and the memory of one
device do, because a partition has its even part of both. What is told twice has to agree.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.fleet.label_index import CU_COUNT, PARTITION, SIMD_COUNT, VRAM, CardLabel
from tonnage.fleet.model import Partition
from tonnage.fleet.refusal import NotPlannableError
from tonnage.fleet.resources import read_count

_MODE: Final = re.compile(r"(?P<compute>[sdtqc]px)_(?P<memory>nps[0-9])")
_WHOLE: Final = "spx"
_MODE_OF_WHOLE: Final = "spx_nps1"
_GIB: Final = 1024**3
_PARTS_OF_WHOLE: Final = 1


@dataclass(frozen=True, slots=True)
class _Told:
    """A mode and what tells it: the resource or a label."""

    mode: str
    by: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """A whole GPU and the memory that it shows here, None where that is not known."""

    accelerator: Accelerator
    memory_bytes: int | None


def amd_partition(resource: str, gpu: Gpu, cards: Sequence[CardLabel]) -> Partition | None:
    """What one device is, None for a whole GPU.

    Raises NotPlannableError for modes that the card has not, and for labels that contradict.
    """
    told = _told_mode(resource, cards)
    if told is None:
        parts = _parts_by_size(gpu, cards)
        mode = _mode_of(gpu.accelerator, parts)
    else:
        parts, mode = _parts_by_mode(gpu.accelerator, told), told.mode
        _check_size(gpu, cards, parts, told)
    if parts == _PARTS_OF_WHOLE:
        return None
    if gpu.memory_bytes is None:
        raise NotPlannableError(
            f"{told.by if told else cards[0]}: the memory of a partition of {gpu.accelerator.id} "
            "is not known",
            in_parts=True,
        )
    return Partition(mode, gpu.memory_bytes // parts, 1 / parts)


def _told_mode(resource: str, cards: Iterable[CardLabel]) -> _Told | None:
    """The mode that resource and labels tell alike."""
    told = [_Told(card.value.lower(), str(card)) for card in cards if card.kind == PARTITION]
    name = resource.partition("/")[2]
    if _MODE.fullmatch(name):
        told.append(_Told(name, f"offers {resource}"))
    for other in told[1:]:
        if other.mode != told[0].mode:
            raise NotPlannableError(f"modes contradict: {told[0].by}, {other.by}", in_parts=True)
    return told[0] if told else None


def _parts_by_mode(accelerator: Accelerator, told: _Told) -> int:
    """Devices of one GPU in the mode that is told."""
    if told.mode == _MODE_OF_WHOLE:
        return _PARTS_OF_WHOLE
    match = _MODE.fullmatch(told.mode)
    known = {found.mode: found for found in accelerator.compute_partitions}
    found = known.get(match["compute"]) if match else None
    if match is None or found is None or match["memory"] not in found.memory_modes:
        modes = [f"{mode}_{nps}" for mode in known for nps in known[mode].memory_modes]
        has = ", ".join([_MODE_OF_WHOLE, *modes])
        raise NotPlannableError(
            f"{told.by}: {accelerator.id} has no such mode, only {has}", in_parts=True
        )
    return found.parts


def _check_size(gpu: Gpu, cards: Iterable[CardLabel], parts: int, told: _Told) -> None:
    """Raises NotPlannableError where a device's units or memory are not those of the mode."""
    for card in cards:
        possible = _parts_told_by(card, gpu)
        if possible is not None and parts not in possible:
            whole = f"{gpu.accelerator.id} has {_size_of(gpu, card.kind)}"
            shared = f", here in {parts} devices" if parts > _PARTS_OF_WHOLE else ""
            raise NotPlannableError(f"{card} contradicts {told.by}: {whole}{shared}", in_parts=True)


def _parts_by_size(gpu: Gpu, cards: Sequence[CardLabel]) -> int:
    """Devices of one GPU where no mode is told: as many as all its labels allow, 1 if none says."""
    common, first = None, None
    for card in cards:
        possible = _parts_told_by(card, gpu)
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


def _parts_told_by(card: CardLabel, gpu: Gpu) -> frozenset[int] | None:
    """Numbers of devices a GPU that a label about one device allows; None if it says nothing."""
    possible = (_PARTS_OF_WHOLE, *(found.parts for found in gpu.accelerator.compute_partitions))
    if card.kind in (CU_COUNT, SIMD_COUNT):
        whole, count = _catalogued_count(card.kind, gpu.accelerator), read_count(card.value) or 0
        return None if whole is None else frozenset(n for n in possible if count * n == whole)
    if card.kind == VRAM and gpu.memory_bytes is not None:
        gib, memory = read_count(card.value.removesuffix("G")), gpu.memory_bytes
        return frozenset(n for n in possible if gib == round(memory / n / _GIB))
    return None


def _size_of(gpu: Gpu, kind: str) -> str:
    """What the whole GPU has of what a label counts."""
    if kind == VRAM:
        return f"{round((gpu.memory_bytes or 0) / _GIB)} GiB"
    units = "compute units" if kind == CU_COUNT else "SIMDs"
    return f"{_catalogued_count(kind, gpu.accelerator)} {units}"


def _catalogued_count(kind: str, accelerator: Accelerator) -> int | None:
    values = (match.values for match in accelerator.matches if match.label == kind)
    return next((read_count(value) for value, *_ in values), None)


def _mode_of(accelerator: Accelerator, parts: int) -> str:
    """The compute mode with so many parts; its memory mode is not told, and does not matter."""
    modes = {found.parts: found.mode for found in accelerator.compute_partitions}
    return modes.get(parts, _WHOLE)
