"""Memory layouts of weights for kernels, by format, architecture and release."""

from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from tonnage.catalog.data_files import Entry, PositiveInt, read_data_file
from tonnage.catalog.model import STRICT
from tonnage.catalog.vllm.releases import parse_version


@dataclass(frozen=True, slots=True, config=STRICT)
class KernelLayout:
    """The kernels' changes to weights of one format; weight_formats.yaml explains the fields.

    The defaults change nothing.
    """

    hidden: PositiveInt = 1
    intermediate: PositiveInt = 1
    scale_rows: PositiveInt = 1
    scale_columns: PositiveInt = 1
    scale_copies: PositiveInt = 1
    row_scale_bits: PositiveInt | None = None
    bias_bytes: PositiveInt | None = None
    silu_only: bool = False


UNQUANTISED: Final = "16-bit"
"""The format of experts that are not quantised."""

AS_STORED: Final = KernelLayout()
"""Weights have the same layout in memory as in the files."""


class KernelEntry(Entry):
    """One entry of weight_formats.yaml: a layout, and the weights that it applies to."""

    format: str
    archs: tuple[str, ...] = Field(min_length=1)
    since: str
    layout: KernelLayout
    methods: frozenset[str] | None = None

    def applies(self, weight_format: str, method: str, arch: str, version: str) -> bool:
        """Whether weights of that format and method have the layout on that architecture."""
        return (
            self.format == weight_format
            and (self.methods is None or method in self.methods)
            and any(fnmatchcase(arch, pattern) for pattern in self.archs)
            and parse_version(self.since) <= parse_version(version)
        )


class FormatsFile(Entry):
    """weight_formats.yaml."""

    compiled: date
    kernels: tuple[KernelEntry, ...] = Field(min_length=1)


@lru_cache(maxsize=1024)
def kernel_layout(weight_format: str, method: str, arch: str, version: str) -> KernelLayout:
    """The memory layout of weights that `method` wrote in that format."""
    layouts = (
        entry.layout
        for entry in reversed(_load().kernels)
        if entry.applies(weight_format, method, arch, version)
    )
    return next(layouts, AS_STORED)


@lru_cache(maxsize=1)
def _load() -> FormatsFile:
    return FormatsFile.model_validate(read_data_file("weight_formats.yaml"))
