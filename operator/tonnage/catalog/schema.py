"""The layout of the data files. Loading validates it and refuses unknown keys."""

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal

from pydantic import Field

from tonnage.catalog.data_files import Entry, PositiveInt
from tonnage.catalog.model import Accelerator, LabelMatch, Price, Vendor
from tonnage.catalog.models.families import Families
from tonnage.catalog.rules import CompatibilityRule
from tonnage.catalog.vllm.images import VendorImage
from tonnage.catalog.vllm.quantization_methods import QuantizationMethod

PositiveFloat = Annotated[float, Field(gt=0)]


class MemoryEntry(Entry):
    """Memory of one device."""

    nominal_gb: PositiveFloat | None
    driver_mib: PositiveInt | None
    torch_bytes: PositiveInt | None
    torch_bytes_vf: PositiveInt | None = None


class FlopsEntry(Entry):
    """Peak dense TFLOPS."""

    bf16: PositiveFloat | None
    fp8: PositiveFloat | None
    fp4: PositiveFloat | None


class InterconnectEntry(Entry):
    """Scale-up links of one GPU, one direction."""

    description: str
    link_gb_s: PositiveFloat | None
    pair_gb_s: PositiveFloat | None


class AcceleratorEntry(Entry):
    """One accelerator of accelerators.yaml."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$")]
    vendor: Vendor
    name: str
    arch: str
    generation: str
    memory: MemoryEntry
    bandwidth_tb_s: PositiveFloat | None
    dense_tflops: FlopsEntry
    fp8_encoding: Literal["e4m3fn", "e4m3fnuz"] | None
    native_fp4: bool
    interconnect: InterconnectEntry
    gpus_per_node: PositiveInt | None
    tdp_watts: PositiveInt | None
    resource: str
    supported: bool
    unsupported_reason: str | None = None
    matches: tuple[LabelMatch, ...]
    pci_device_ids: tuple[str, ...]
    pci_device_ids_vf: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    sources: Annotated[tuple[str, ...], Field(min_length=1)]
    confidence: Literal["high", "medium", "low"]

    def to_accelerator(self, price: Price | None) -> Accelerator:
        """The entry in base units: bytes, bytes per second, operations per second."""
        link = self.interconnect
        return Accelerator(
            id=self.id,
            vendor=self.vendor,
            name=self.name,
            arch=self.arch,
            resource=self.resource,
            gpus_per_node=self.gpus_per_node,
            memory_bytes=self.memory.torch_bytes,
            memory_bytes_vf=self.memory.torch_bytes_vf,
            memory_bandwidth=_scaled(self.bandwidth_tb_s, 1e12),
            bf16_flops=_scaled(self.dense_tflops.bf16, 1e12),
            fp8_flops=_scaled(self.dense_tflops.fp8, 1e12),
            fp4_flops=_scaled(self.dense_tflops.fp4, 1e12),
            link_bandwidth=_scaled(link.link_gb_s, 1e9),
            pair_bandwidth=_scaled(link.pair_gb_s or link.link_gb_s, 1e9),
            fp8_encoding=self.fp8_encoding,
            native_fp4=self.native_fp4,
            supported=self.supported,
            unsupported_reason=self.unsupported_reason,
            matches=self.matches,
            pci_device_ids=self.pci_device_ids,
            pci_device_ids_vf=self.pci_device_ids_vf,
            price=price,
            driver_mib=self.memory.driver_mib,
        )


def _scaled(value: float | None, factor: float) -> float | None:
    return None if value is None else value * factor


class AcceleratorsFile(Entry):
    """accelerators.yaml; `sources` explains the abbreviations in the entries' sources."""

    compiled: date
    sources: Mapping[str, str]
    accelerators: tuple[AcceleratorEntry, ...]


class PriceEntry(Entry):
    """An observed price."""

    usd_per_gpu_hour: Decimal
    date: date
    source: str

    def to_price(self) -> Price:
        """The entry as a `Price` of the catalogue."""
        return Price(self.usd_per_gpu_hour, self.date.isoformat(), self.source)


class PricesFile(Entry):
    """prices.yaml."""

    prices: Mapping[str, PriceEntry]


class ImagesFile(Entry):
    """images.yaml."""

    images: Mapping[Vendor, VendorImage]


class EnginesFile(Entry):
    """engines.yaml; loading validates an entry's fields after it resolves its `like`."""

    compiled: date
    default: str
    releases: Mapping[str, Mapping[str, Any]]


class RulesFile(Entry):
    """rules.yaml."""

    compiled: date
    rules: tuple[CompatibilityRule, ...]


class QuantizationMethodsFile(Entry):
    """quantization_methods.yaml."""

    compiled: date
    methods: Mapping[str, QuantizationMethod]
    families: tuple[frozenset[str], ...]


class ArchitecturesFile(Entry):
    """architectures.yaml; `unsized` maps a reason to the classes that it applies to."""

    compiled: date
    served: frozenset[str]
    no_pipeline: frozenset[str]
    pooling: frozenset[str]
    draft: frozenset[str]
    removed: Mapping[str, str]
    plugins: Mapping[str, str]
    unsized: Mapping[str, frozenset[str]]
    transformers_code: frozenset[str]
    text_only: frozenset[str]
    families: Families
