"""Refuses devices that cannot be whole GPUs although no label calls them partitions."""

from collections.abc import Iterable, Sequence
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.fleet.devices.label_index import (
    CU_COUNT,
    INSTANCE_GPU_MEMORY,
    MEMORY,
    PRODUCT,
    VRAM,
    CardLabel,
)
from tonnage.fleet.devices.resources import NotPlannableError, read_count

_MIB: Final = 1024**2
_MEMORY_LABELS: Final = (MEMORY, INSTANCE_GPU_MEMORY)
_SIZE_LABELS: Final = (PRODUCT, MEMORY, CU_COUNT, VRAM)

_TOLERANCE: Final = 0.1
"""Relative. Labels state NVML's total or the data sheet's, torch up to a few per cent less."""


def refuse_parts(accelerator: Accelerator, count: int, cards: Sequence[CardLabel]) -> None:
    """Raise NotPlannableError where `count` devices cannot be whole GPUs of this kind."""
    for card in cards:
        if card.kind in _MEMORY_LABELS and not _is_memory_of(accelerator, card):
            raise NotPlannableError(
                f"{card} (MiB) contradicts {accelerator.id}, whose GPUs have "
                f"{(accelerator.memory_bytes or 0) // _MIB}"
            )
    per_node = accelerator.gpus_per_node
    divisible = accelerator.compute_partitions or accelerator.mig
    if per_node and divisible and not _has_size_label(cards) and count >= 2 * per_node:
        raise NotPlannableError(
            f"offers {count} devices, a node of {accelerator.id} has {per_node}: they are "
            "partitions, and no label names the mode"
        )


def _is_memory_of(accelerator: Accelerator, card: CardLabel) -> bool:
    mebibytes, whole = read_count(card.value), accelerator.memory_bytes
    if whole is None or mebibytes is None:
        return True
    return abs(mebibytes * _MIB - whole) <= _TOLERANCE * whole


def _has_size_label(cards: Iterable[CardLabel]) -> bool:
    return any(card.kind in _SIZE_LABELS for card in cards)
