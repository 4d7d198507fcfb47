"""What the operator makes of SGLang's arguments, and its images: sglang_server.yaml, which
explains each field."""

from collections.abc import Mapping
from datetime import date
from functools import lru_cache
from typing import Final, Self

from pydantic import model_validator

from tonnage.catalog.data_files import Entry, read_data_file
from tonnage.catalog.model import Vendor
from tonnage.catalog.sglang_arguments import GivenArgument, load_sglang_arguments
from tonnage.catalog.vllm.images import CudaVersion

_ANY: Final = "any"


class SglangServer(Entry):
    """The whole file."""

    compiled: date
    version: str
    reserved: Mapping[str, str]
    permitted: Mapping[str, frozenset[str]]
    of_vllm: Mapping[str, str]
    uncounted: Mapping[str, str]
    images: Mapping[Vendor, Mapping[str, str]]
    oldest_cuda: CudaVersion
    oldest_driver: int

    @model_validator(mode="after")
    def _check_names(self) -> Self:
        table = load_sglang_arguments()
        unknown = (self.reserved.keys() | self.uncounted.keys()) - table.arguments.keys()
        if unknown:
            raise ValueError(f"no arguments of SGLang: {sorted(unknown)}")
        return self

    def explain_reserved(self, given: GivenArgument) -> str | None:
        """What to do instead of an argument that only the operator sets, None for others and for
        permitted values."""
        is_permitted = self.permitted.get(given.name, frozenset()).issuperset(given.values)
        return None if is_permitted and given.values else self.reserved.get(given.name)

    def image(self, vendor: Vendor, arch: str) -> str | None:
        """The vendor's image for a GPU of that architecture, None without one."""
        by_arch = self.images.get(vendor, {})
        image = by_arch.get(arch) or by_arch.get(_ANY)
        return image.format(version=self.version) if image else None


@lru_cache(maxsize=1)
def load_sglang_server() -> SglangServer:
    """The file, read once. A pydantic.ValidationError is a mistake in the package."""
    return SglangServer.model_validate(read_data_file("sglang_server.yaml"))
