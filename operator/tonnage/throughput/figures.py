"""The effective figures of each architecture, from the catalogue's data file."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.model import Accelerator

Share = Annotated[float, Field(gt=0, le=1)]


class Figures(BaseModel):
    """What an architecture reaches of its peak; see the data file for the formula and sources.

    `compute_efficiency` is by precision (bf16, fp8, fp4).
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    bandwidth_efficiency: Share
    seconds_per_layer: Annotated[float, Field(gt=0)]
    compute_efficiency: Mapping[str, Share]
    source: str


class ThroughputData(BaseModel):
    """throughput.yaml."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    compiled: date
    band: Share
    single_gpu_layer_share: Share
    link_efficiency: Share
    architectures: Mapping[str, Figures]
    accelerators: Mapping[str, Figures]

    def figures(self, accelerator: Accelerator) -> Figures | None:
        """The accelerator's own figures, else its architecture's, None when neither is known."""
        return self.accelerators.get(accelerator.id) or self.architectures.get(accelerator.arch)


@lru_cache(maxsize=1)
def load_throughput_data() -> ThroughputData:
    """The figures that come with this package, read once.

    Raises pydantic.ValidationError when the data file breaks its layout.
    """
    return ThroughputData.model_validate(read_data_file("throughput.yaml"))
