"""Whether vLLM's images run on a node: the CUDA version of its driver, and its processor."""

from collections.abc import Mapping
from typing import Final

from tonnage.catalog.model import Accelerator
from tonnage.catalog.vllm.images import CudaVersion, VendorImage, parse_cuda_version
from tonnage.fleet.devices.label_index import ARCHITECTURE, show_label
from tonnage.fleet.devices.resources import read_count

# GPU feature discovery (NVIDIA/k8s-device-plugin, internal/lm/nvml.go) and the names before.
_FULL: Final = "nvidia.com/cuda.runtime-version.full"
_NUMBERS: Final = ("nvidia.com/cuda.runtime-version", "nvidia.com/cuda.runtime")
DRIVER_BRANCH: Final = "nvidia.com/cuda.driver-version.major"
"""The label of the driver's branch, for example 580."""

_DRIVERS: Final = (DRIVER_BRANCH, "nvidia.com/cuda.driver.major")
_MAX_NUMBER: Final = 99


def driver_cuda(labels: Mapping[str, str], image: VendorImage) -> CudaVersion | None:
    """Return the newest CUDA version that the node's driver supports, None without a label."""
    try:
        return parse_cuda_version(labels.get(_FULL, ""))
    except ValueError:
        pass  # other labels may state it
    for prefix in _NUMBERS:
        major, minor = (read_count(labels.get(f"{prefix}.{name}")) for name in ("major", "minor"))
        if major is not None and minor is not None and max(major, minor) <= _MAX_NUMBER:
            return major, minor
    branches = (read_count(labels.get(key)) for key in _DRIVERS)
    branch = next((branch for branch in branches if branch is not None), None)
    return None if branch is None else image.cuda_of_driver(branch)


def why_no_image(
    accelerator: Accelerator,
    cuda: CudaVersion | None,
    labels: Mapping[str, str],
    image: VendorImage,
) -> str | None:
    """Why no vLLM image runs on such a node, None when no reason is known."""
    if cuda is not None and cuda < image.oldest_cuda:
        needs = ".".join(map(str, image.oldest_cuda))
        return (
            f"its driver supports CUDA {cuda[0]}.{cuda[1]}, every vLLM image needs {needs}: "
            "update the driver"
        )
    expected = architectures_for(accelerator, image)
    architecture = labels.get(ARCHITECTURE)
    if architecture is not None and architecture not in expected:
        label = show_label(ARCHITECTURE, architecture)
        return f"{label}: vLLM images for {accelerator.id} are for {', '.join(expected)}"
    return None


def architectures_for(accelerator: Accelerator, image: VendorImage) -> tuple[str, ...]:
    """Values of kubernetes.io/arch that pods for this accelerator run on: those of its host where
    the catalogue names them (GB200: arm64), else those that images are built for."""
    named = (match.values for match in accelerator.matches if match.label == ARCHITECTURE)
    return next(named, image.architectures)
