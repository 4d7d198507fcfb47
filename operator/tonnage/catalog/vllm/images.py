"""Images of vLLM: repository, tag by driver, and CPU architectures."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass as checked_dataclass

from tonnage.catalog.model import STRICT
from tonnage.catalog.vllm.releases import parse_version

CudaVersion = tuple[int, int]
"""Major and minor version of CUDA, for example (12, 9)."""


def parse_cuda_version(text: str) -> CudaVersion:
    """Parses "13.0" or "12.9.1". Raises ValueError for other texts."""
    numbers = text.split(".")
    if len(numbers) not in (2, 3) or not all(
        part.isascii() and part.isdigit() and len(part) < 5 for part in numbers
    ):
        raise ValueError(f"CUDA version {text[:20]!r}: expected two numbers such as 12.9")
    return int(numbers[0]), int(numbers[1])


Cuda = Annotated[CudaVersion, BeforeValidator(parse_cuda_version)]


@checked_dataclass(frozen=True, slots=True, config=STRICT)
class CudaBuild:
    """One build of a release: its tag's suffix, and the CUDA version that it needs."""

    suffix: str
    cuda: Cuda


@checked_dataclass(frozen=True, slots=True, config=STRICT)
class Builds:
    """The builds of releases from `since` on, the preferred one first."""

    since: str
    builds: tuple[CudaBuild, ...]


@checked_dataclass(frozen=True, slots=True, config=STRICT)
class DriverBranch:
    """The CUDA version that NVIDIA's drivers from this branch (major version) on support."""

    branch: int
    cuda: Cuda


@checked_dataclass(frozen=True, slots=True, config=STRICT)
class VendorImage:
    """A vendor's vLLM image: its repository, values of kubernetes.io/arch, and builds.

    `cuda` lists builds from the newest releases to the oldest, `drivers` branches likewise; both
    are empty for a vendor without CUDA.
    """

    repository: str
    architectures: tuple[str, ...]
    cuda: tuple[Builds, ...] = ()
    drivers: tuple[DriverBranch, ...] = ()

    @property
    def oldest_cuda(self) -> CudaVersion:
        """The oldest CUDA version of any build; an older driver runs none of them."""
        return min((build.cuda for builds in self.cuda for build in builds.builds), default=(0, 0))

    def build(self, version: str, cuda: CudaVersion | None) -> CudaBuild | None:
        """The build of a release for drivers that support `cuda` (None: unknown), None for a vendor
        without CUDA.

        It is the first one that such a driver runs, else the last one.
        """
        builds = self._builds_of(version)
        if not builds or cuda is None:
            return builds[0] if builds else None
        return next((build for build in builds if build.cuda <= cuda), builds[-1])

    def oldest_driver(self, build: CudaBuild) -> int | None:
        """The oldest driver branch that runs the build, None if no listed one does."""
        branches = (entry.branch for entry in self.drivers if entry.cuda >= build.cuda)
        return min(branches, default=None)

    def cuda_of_driver(self, branch: int) -> CudaVersion | None:
        """The CUDA version that drivers of this branch support, None if older than all listed."""
        return next((entry.cuda for entry in self.drivers if entry.branch <= branch), None)

    def _builds_of(self, version: str) -> Sequence[CudaBuild]:
        numbers = parse_version(version)
        candidates = (entry.builds for entry in self.cuda if parse_version(entry.since) <= numbers)
        return next(candidates, ())
