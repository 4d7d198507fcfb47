"""Whether what a node offers are whole GPUs: a slice or a shared GPU carries no vLLM replica.

A replica plans with all of a device's memory, and a tensor-parallel group needs peer access that
slices do not have.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from tonnage.catalog.model import Accelerator, Vendor
from tonnage.fleet.label_index import CU_COUNT, PARTITION, PRODUCT, VRAM, CardLabel
from tonnage.fleet.resources import read_count, vendor_of

_SPX: Final = "spx"
_GIB: Final = 1024**3
# CDNA3 and CDNA4 alone can be partitioned.
_PARTITIONABLE: Final = ("gfx94", "gfx95")


def why_not_whole(
    resource: str, count: int, labels: Mapping[str, str], cards: Iterable[CardLabel]
) -> str | None:
    """What the labels say against `count` units of `resource` being whole GPUs, None if nothing."""
    if vendor_of(resource) is Vendor.AMD:
        return _why_partitioned(cards)
    return _why_sliced(labels) or _why_shared(labels, count)


def why_not_all_of(accelerator: Accelerator, count: int, cards: Iterable[CardLabel]) -> str | None:
    """What shows that a device is only a part of this accelerator: units, memory or number."""
    for card in cards:
        if card.kind == CU_COUNT and card.value not in _compute_units(accelerator, card.value):
            expected = "/".join(_compute_units(accelerator, card.value))
            return f"{card} contradicts {accelerator.id}, which has {expected} compute units"
        if card.kind == VRAM and _is_part_of_memory(accelerator, card.value):
            return f"{card} is a part of the memory of {accelerator.id}: the GPU is partitioned"
    per_node = accelerator.gpus_per_node
    if (
        accelerator.arch.startswith(_PARTITIONABLE)
        and per_node is not None
        and count >= 2 * per_node
    ):
        return f"offers {count} devices, a node of {accelerator.id} has {per_node}: partitioned"
    return None


def _why_partitioned(cards: Iterable[CardLabel]) -> str | None:
    for card in cards:
        if card.kind == PARTITION and not card.value.lower().startswith(_SPX):
            return f"{card}: the GPUs are partitioned, a partition is not a whole GPU"
    return None


def _why_sliced(labels: Mapping[str, str]) -> str | None:
    product = labels.get(PRODUCT, "")
    if "-MIG-" in product:
        return f"{PRODUCT}={product}: MIG devices are not whole GPUs"
    if labels.get("nvidia.com/vgpu.present") == "true":
        return "nvidia.com/vgpu.present=true: a vGPU is not a whole GPU"
    return None


def _why_shared(labels: Mapping[str, str], count: int) -> str | None:
    product = labels.get(PRODUCT, "")
    strategy = labels.get("nvidia.com/gpu.sharing-strategy", "none")
    replicas = read_count(labels.get("nvidia.com/gpu.replicas")) or 1
    present = read_count(labels.get("nvidia.com/gpu.count"))
    if product.endswith("-SHARED"):
        return f"{PRODUCT}={product}: a share of a GPU is not a whole GPU"
    if strategy not in ("none", ""):
        return f"nvidia.com/gpu.sharing-strategy={strategy}: a share of a GPU is not a whole GPU"
    if replicas > 1:
        return f"nvidia.com/gpu.replicas={replicas}: a share of a GPU is not a whole GPU"
    if present and count > present:
        return f"offers {count} devices but nvidia.com/gpu.count={present}: the GPUs are shared"
    return None


def _compute_units(accelerator: Accelerator, otherwise: str) -> tuple[str, ...]:
    for match in accelerator.matches:
        if match.label == CU_COUNT:
            return match.values
    return (otherwise,)


def _is_part_of_memory(accelerator: Accelerator, vram: str) -> bool:
    """Whether a label such as 24G (rounded GiB) is clearly less than the whole device."""
    gib = read_count(vram.removesuffix("G"))
    if gib is None or accelerator.memory_bytes is None:
        return False
    return gib * _GIB < 0.75 * accelerator.memory_bytes
