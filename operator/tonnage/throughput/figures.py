"""The effective figures behind the estimate, from the catalogue's data file."""

from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.engine import parse_version
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import Release
from tonnage.checkpoint.model import Quantization
from tonnage.fit.precision import weight_format

Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]


class Entry(BaseModel):
    """A piece of the data file; its fields are explained there, with formula and sources."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Bands(Entry):
    """Relative uncertainty of estimates for models without and with experts.

    What was measured lay within it, as a share of the estimate, for four of five records.
    """

    dense: Share
    experts: Share


class Figures(Entry):
    """What an architecture reaches of its peak, and what each layer costs beside.

    `compute_efficiency` is by precision (bf16, fp8, fp4).
    """

    bandwidth_efficiency: Share
    compute_efficiency: Mapping[str, Share]
    attention_efficiency: Share
    seconds_per_layer: Seconds
    seconds_per_collective: Seconds
    seconds_per_expert_layer: Seconds
    band: Bands
    source: str


class EngineGeneration(Entry):
    """How an engine before some release differs from today's."""

    before: Release
    layer_factor: Annotated[float, Field(ge=1)]
    compute_factor: Share
    seconds_per_request: Seconds
    source: str


class ExpandedFormat(Entry):
    """Quantised weights for which these architectures have no kernels: every step expands them."""

    archs: tuple[str, ...]
    weight_formats: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    before: Release | None = None
    except_architectures: frozenset[str] = frozenset()
    source: str

    def covers(self, arch: str, version: str, architecture: str) -> bool:
        """Whether this holds on that device, in that release, for that model class."""
        if architecture in self.except_architectures:
            return False
        if self.before is not None and parse_version(version) >= parse_version(self.before):
            return False
        return any(fnmatchcase(arch, pattern) for pattern in self.archs)


class ThroughputData(Entry):
    """throughput.yaml."""

    compiled: date
    link_efficiency: Share
    expert_efficiency: Share
    weight_only_efficiency: Share
    seconds_per_request: Seconds
    expansion_reads: Annotated[float, Field(ge=1)]
    expanded: tuple[ExpandedFormat, ...]
    older_engines: tuple[EngineGeneration, ...]
    architectures: Mapping[str, Figures]
    accelerators: Mapping[str, Figures]

    def figures(self, accelerator: Accelerator) -> Figures | None:
        """The accelerator's own figures, else its architecture's, None when neither is known."""
        return self.accelerators.get(accelerator.id) or self.architectures.get(accelerator.arch)

    def older_engine(self, version: str) -> EngineGeneration | None:
        """The generation that a release belongs to, None for today's."""
        numbers = parse_version(version)
        return next(
            (engine for engine in self.older_engines if numbers < parse_version(engine.before)),
            None,
        )

    def expands(
        self, arch: str, version: str, loaded: Quantization | None, architecture: str
    ) -> bool:
        """Whether every step expands such weights before it can use them."""
        if loaded is None:
            return False
        stored = weight_format(loaded)
        return any(
            entry.covers(arch, version, architecture)
            for entry in self.expanded
            if stored in entry.weight_formats or loaded.method in entry.methods
        )


@lru_cache(maxsize=1)
def load_throughput_data() -> ThroughputData:
    """The figures that come with this package, read once.

    Raises pydantic.ValidationError when the data file breaks its layout.
    """
    return ThroughputData.model_validate(read_data_file("throughput.yaml"))
