"""Memory layouts of weights for kernels."""

import pytest

from tonnage.catalog.load import load_catalog
from tonnage.catalog.vllm.weight_formats import AS_STORED, KernelLayout, kernel_layout

GPT_OSS = ("mxfp4", "mxfp4")

# (format, method), arch, release -> hidden, intermediate: what an expert's sizes are rounded up to.
ROUNDED = [
    (GPT_OSS, "sm_80", "0.19.0", (256, 128)),
    (GPT_OSS, "sm_90", "0.10.1", (256, 128)),
    (GPT_OSS, "sm_90", "0.14.1", (1, 64)),
    (GPT_OSS, "sm_90", "0.32.0", (1, 64)),
    (GPT_OSS, "sm_100", "0.27.0", (256, 256)),
    (GPT_OSS, "sm_100", "0.28.0", (256, 128)),
    (GPT_OSS, "sm_120", "0.32.0", (256, 128)),
    (GPT_OSS, "gfx942", "0.32.0", (256, 256)),
    (GPT_OSS, "unknown", "0.32.0", (256, 128)),
    (("mxfp4", "fp8"), "sm_90", "0.32.0", (256, 128)),
    (("mxfp4", "fp8"), "gfx950", "0.32.0", (128, 128)),
]


@pytest.mark.parametrize(("format_and_method", "arch", "version", "want"), ROUNDED)
def test_experts_in_mxfp4_are_rounded_up_for_the_kernels(
    format_and_method: tuple[str, str], arch: str, version: str, want: tuple[int, int]
) -> None:
    got = kernel_layout(*format_and_method, arch, version)
    assert (got.hidden, got.intermediate) == want


def test_other_formats_lie_as_they_are_stored() -> None:
    for weight_format in ("int4", "int8", "mxfp8", "16-bit"):
        assert kernel_layout(weight_format, "any", "sm_90", "0.32.0") is AS_STORED
    assert KernelLayout() == AS_STORED


def test_every_release_and_architecture_has_a_layout() -> None:
    catalog = load_catalog()
    for accelerator in catalog.accelerators.values():
        for version in catalog.releases:
            assert kernel_layout("mxfp4", "mxfp4", accelerator.arch, version).intermediate > 1
