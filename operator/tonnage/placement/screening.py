"""What stands against a pool before its devices are asked for more than their number and size."""

from dataclasses import dataclass
from typing import Final

from tonnage.api.inference import PlacementSpec
from tonnage.catalog.model import Accelerator
from tonnage.fleet.model import Partition, Pool
from tonnage.placement.model import Rejection
from tonnage.placement.reasons import RejectedReason

_UNSUPPORTED: Final = "UnsupportedAccelerator"
"""The compatibility rule of devices that no image is built for."""


@dataclass(frozen=True, slots=True)
class Devices:
    """What a pool that passed can be planned on: so many devices on its largest node, usable now or
    not, of so many bytes each. `partition` is what a device is where it is not a whole GPU."""

    accelerator: Accelerator
    device_bytes: int
    largest_node: int
    partition: Partition | None = None

    @property
    def most_per_replica(self) -> int:
        """Devices that one replica may be split over: partitions carry no group."""
        return self.largest_node if self.partition is None else 1


def screen_pool(placement: PlacementSpec, pool: Pool) -> Devices | Rejection:
    """The pool's devices, or the first thing that stands against it."""
    return _why_not_wanted(placement, pool) or _plannable_devices(placement, pool)


def _why_not_wanted(placement: PlacementSpec, pool: Pool) -> Rejection | None:
    if placement.pool_selector is not None:
        for key, value in placement.pool_selector.match_labels.items():
            if pool.labels.get(key) != value:
                told = f"spec.placement.poolSelector asks for label {key}={value}"
                return Rejection(RejectedReason.NOT_SELECTED, told)
    allowed, accelerator = placement.accelerators, pool.accelerator
    if allowed is not None and accelerator is not None and accelerator.id not in allowed:
        told = f"{accelerator.id} is not in spec.placement.accelerators ({', '.join(allowed)})"
        return Rejection(RejectedReason.NOT_ALLOWED, told)
    return None


def _plannable_devices(placement: PlacementSpec, pool: Pool) -> Devices | Rejection:
    if not pool.nodes and not pool.largest_node:
        told = "no node has the labels of its nodeSelector"
        if pool.growth:
            told += f"; one has to be there before the size of the {pool.growth} to come is known"
        return Rejection(RejectedReason.NO_USABLE_NODES, told)
    if pool.accelerator is None:
        return Rejection(RejectedReason.UNRECOGNISED, pool.unrecognised or "not recognised")
    if not pool.accelerator.supported and _UNSUPPORTED not in placement.allow:
        told = pool.accelerator.unsupported_reason or "not supported by vLLM"
        return Rejection(RejectedReason.UNSUPPORTED, f"{pool.accelerator.id}: {told}")
    device_bytes = pool.partition.device_bytes if pool.partition else pool.device_bytes
    if device_bytes is None:
        told = f"the memory that {pool.accelerator.id} shows to vLLM is not known"
        return Rejection(RejectedReason.UNSUPPORTED, told)
    if pool.largest_node == 0:
        first = pool.nodes[0]
        told = f"none of its {len(pool.nodes)} nodes offers GPUs ({first.name}: {first.unusable})"
        return Rejection(RejectedReason.NO_USABLE_NODES, told)
    return Devices(pool.accelerator, device_bytes, pool.largest_node, pool.partition)
