"""How kernels want quantised weights in device memory, by format, architecture and release."""

from datetime import date
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Final

from pydantic import Field
from pydantic.dataclasses import dataclass

from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.engine import parse_version
from tonnage.catalog.model import STRICT
from tonnage.catalog.schema import Entry, PositiveInt


@dataclass(frozen=True, slots=True, config=STRICT)
class KernelLayout:
    """What the kernels for one format change about weights; what the fields mean stands in
    formats.yaml. The defaults change nothing."""

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
"""Weights lie in memory as in the files."""


class KernelEntry(Entry):
    """One entry of formats.yaml: the layout, and what it applies to."""

    format: str
    archs: tuple[str, ...] = Field(min_length=1)
    since: str
    layout: KernelLayout
    methods: frozenset[str] | None = None

    def applies(self, weight_format: str, method: str, arch: str, version: str) -> bool:
        """Whether weights of that format and method lie so on that architecture."""
        return (
            self.format == weight_format
            and (self.methods is None or method in self.methods)
            and any(fnmatchcase(arch, pattern) for pattern in self.archs)
            and parse_version(self.since) <= parse_version(version)
        )


class FormatsFile(Entry):
    """formats.yaml."""

    compiled: date
    kernels: tuple[KernelEntry, ...] = Field(min_length=1)


@lru_cache(maxsize=1024)
def kernel_layout(weight_format: str, method: str, arch: str, version: str) -> KernelLayout:
    """How weights that `method` stored in that format lie on an architecture with that release."""
    applying = (
        entry.layout
        for entry in reversed(_load().kernels)
        if entry.applies(weight_format, method, arch, version)
    )
    return next(applying, AS_STORED)


@lru_cache(maxsize=1)
def _load() -> FormatsFile:
    return FormatsFile.model_validate(read_data_file("formats.yaml"))
