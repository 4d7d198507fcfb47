"""How each accelerator can be divided, out of partitions.yaml."""

from collections.abc import Mapping
from datetime import date
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.model import ComputePartition, MigGeometry

Share = Annotated[float, Field(gt=0, le=1)]


class Section(BaseModel):
    """A part of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Mode(Section):
    """One mode of AMD's partitioning."""

    parts: Annotated[int, Field(ge=2)]
    memory_modes: tuple[str, ...]


class ComputePartitions(Section):
    """Modes by layout of the dies, and the layout of each accelerator."""

    source: str
    date: date
    layouts: Mapping[str, Mapping[str, Mode]]
    accelerators: Mapping[str, str]


class Mig(Section):
    """Compute slices by accelerator, and what memory a MIG device shows."""

    source: str
    date: date
    share_of_label: Share
    share_of_name: Share
    slices: Mapping[str, Annotated[int, Field(ge=1)]]


class Partitioning(Section):
    """partitions.yaml."""

    compiled: date
    compute_partitions: ComputePartitions
    mig: Mig

    def compute_partitions_of(self, accelerator_id: str) -> tuple[ComputePartition, ...]:
        """AMD's modes on this accelerator, none where it cannot be partitioned."""
        layout = self.compute_partitions.accelerators.get(accelerator_id)
        modes = self.compute_partitions.layouts[layout] if layout else {}
        return tuple(
            ComputePartition(name, mode.parts, mode.memory_modes) for name, mode in modes.items()
        )

    def mig_of(self, accelerator_id: str) -> MigGeometry | None:
        """MIG on this accelerator, None where there is none."""
        slices = self.mig.slices.get(accelerator_id)
        if slices is None:
            return None
        return MigGeometry(slices, self.mig.share_of_label, self.mig.share_of_name)


def load_partitioning() -> Partitioning:
    """The file's content. Raises pydantic.ValidationError when it breaks its layout."""
    return Partitioning.model_validate(read_data_file("partitions.yaml"))
