"""The partitions of each accelerator, from partitions.yaml."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated

from pydantic import Field

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.model import ComputePartition, MigGeometry

MemoryFraction = Annotated[float, Field(gt=0, le=1)]


class PartitionMode(Entry):
    """One mode of AMD's partitioning."""

    parts: Annotated[int, Field(ge=2)]
    memory_modes: tuple[str, ...]


class ComputePartitions(Entry):
    """Modes by layout of the dies, and the layout of each accelerator."""

    source: str
    date: date
    layouts: Mapping[str, Mapping[str, PartitionMode]]
    accelerators: Mapping[str, str]


class Mig(Entry):
    """Compute slices by accelerator, and the memory that torch reports for a MIG device."""

    source: str
    date: date
    share_of_label: MemoryFraction
    share_of_name: MemoryFraction
    slices: Mapping[str, Annotated[int, Field(ge=1)]]


class Partitioning(Entry):
    """partitions.yaml."""

    compiled: date
    compute_partitions: ComputePartitions
    mig: Mig

    def compute_partitions_of(self, accelerator_id: str) -> tuple[ComputePartition, ...]:
        """AMD's modes on this accelerator, empty if it has none."""
        layout = self.compute_partitions.accelerators.get(accelerator_id)
        modes = self.compute_partitions.layouts[layout] if layout else {}
        return tuple(
            ComputePartition(name, mode.parts, mode.memory_modes) for name, mode in modes.items()
        )

    def mig_of(self, accelerator_id: str) -> MigGeometry | None:
        """MIG on this accelerator, None without MIG."""
        slices = self.mig.slices.get(accelerator_id)
        if slices is None:
            return None
        return MigGeometry(slices, self.mig.share_of_label, self.mig.share_of_name)


def load_partitioning() -> Partitioning:
    """Loads the file. Raises pydantic.ValidationError if it is invalid."""
    return Partitioning.model_validate(read_data_file("partitions.yaml"))
