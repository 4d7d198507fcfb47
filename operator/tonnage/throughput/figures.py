"""The effective figures of the estimate, from the catalogue's data file."""

from collections.abc import Mapping
from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Annotated

from pydantic import Field

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.model import Accelerator
from tonnage.catalog.rules import Release
from tonnage.catalog.vllm.releases import parse_version
from tonnage.checkpoint.model import Quantization
from tonnage.fit.weights.precision import weight_format

Share = Annotated[float, Field(gt=0, le=1)]
Seconds = Annotated[float, Field(ge=0)]


class Bands(Entry):
    """Relative uncertainty of estimates for models without and with experts.

    Four of five measurements are within this share of the estimate.
    """

    dense: Share
    experts: Share


class Figures(Entry):
    """The shares of its peaks that an architecture reaches, and the fixed costs of each layer.

    `compute_efficiency` is by precision (bf16, fp8, fp4). Attention of prompts keeps the matrix
    units busier than that of decoding requests, which have one token each.
    """

    bandwidth_efficiency: Share
    compute_efficiency: Mapping[str, Share]
    attention_efficiency: Share
    prompt_attention_efficiency: Share
    seconds_per_layer: Seconds
    seconds_per_collective: Seconds
    seconds_per_expert_layer: Seconds
    band: Bands
    source: str


class EngineGeneration(Entry):
    """The figures of engine releases before `before`, relative to current ones."""

    before: Release
    layer_factor: Annotated[float, Field(ge=1)]
    compute_factor: Share
    seconds_per_request: Seconds
    source: str


class ExpandedFormat(Entry):
    """Formats without kernels on `archs`: every step expands these quantised weights."""

    archs: tuple[str, ...]
    weight_formats: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    before: Release | None = None
    except_architectures: frozenset[str] = frozenset()
    source: str

    def covers(self, arch: str, version: str, architecture: str) -> bool:
        """Return whether this applies to a device, a release and a model class."""
        if architecture in self.except_architectures:
            return False
        if self.before is not None and parse_version(version) >= parse_version(self.before):
            return False
        return any(fnmatchcase(arch, pattern) for pattern in self.archs)


class SeveralNodes(Entry):
    """Replicas over several nodes: the latency of a pipeline boundary between two nodes, and what
    the relative uncertainty grows by."""

    seconds_per_boundary: Seconds
    band: Share
    source: str


class ThroughputData(Entry):
    """The content of throughput.yaml."""

    compiled: date
    link_efficiency: Share
    expert_efficiency: Share
    weight_only_efficiency: Share
    seconds_per_request: Seconds
    several_nodes: SeveralNodes
    expansion_reads: Annotated[float, Field(ge=1)]
    expanded: tuple[ExpandedFormat, ...]
    older_engines: tuple[EngineGeneration, ...]
    architectures: Mapping[str, Figures]
    accelerators: Mapping[str, Figures]

    def figures(self, accelerator: Accelerator) -> Figures | None:
        """Return the figures of the accelerator, else of its architecture, None without either."""
        return self.accelerators.get(accelerator.id) or self.architectures.get(accelerator.arch)

    def older_engine(self, version: str) -> EngineGeneration | None:
        """Return the generation of an older release, None for current ones."""
        parsed = parse_version(version)
        return next(
            (engine for engine in self.older_engines if parsed < parse_version(engine.before)),
            None,
        )

    def expands(
        self, arch: str, version: str, loaded: Quantization | None, architecture: str
    ) -> bool:
        """Return whether every step expands weights of the format `loaded` before use."""
        if loaded is None:
            return False
        loaded_format = weight_format(loaded)
        return any(
            entry.covers(arch, version, architecture)
            for entry in self.expanded
            if loaded_format in entry.weight_formats or loaded.method in entry.methods
        )


@lru_cache(maxsize=1)
def load_throughput_data() -> ThroughputData:
    """Return the figures in this package, cached.

    Raises pydantic.ValidationError for an invalid data file.
    """
    return ThroughputData.model_validate(read_data_file("throughput.yaml"))
