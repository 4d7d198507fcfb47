"""The data files load, are complete, and match the vendors' figures."""

from decimal import Decimal
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from tonnage.catalog.catalog import UnknownRuleError
from tonnage.catalog.cloud_labels import load_cloud_matches
from tonnage.catalog.data_files import read_data_file
from tonnage.catalog.load import load_catalog
from tonnage.catalog.model import Vendor
from tonnage.catalog.models import encoders as encoders_module
from tonnage.catalog.models.encoders import encoder_item
from tonnage.catalog.partitioning import load_partitioning
from tonnage.catalog.rules import CompatibilityRule
from tonnage.catalog.schema import AcceleratorsFile
from tonnage.catalog.vllm.images import parse_cuda_version
from tonnage.catalog.vllm.quantization_methods import MethodStatus
from tonnage.catalog.vllm.releases import BatchTier, parse_version

CATALOG = load_catalog()

RULE: dict[str, Any] = {
    "name": "NotThere",
    "outcome": "warned",
    "when": {"archs": ["gfx942"]},
    "message": "m",
    "evidence": ["e"],
    "checked": "2026-11-21",
    "expires": "0.36.0",
}


def test_every_accelerator_is_under_its_id() -> None:
    listed = AcceleratorsFile.model_validate(read_data_file("accelerators.yaml")).accelerators
    assert [entry.id for entry in listed] == list(CATALOG.accelerators)
    assert all(key == entry.id for key, entry in CATALOG.accelerators.items())


@pytest.mark.parametrize(
    ("accelerator", "want_bytes"),
    [
        ("mi300x", 206_141_652_992),
        ("mi325x", 274_861_129_728),
        ("mi355x", 309_220_868_096),
        ("h100-sxm-80gb", 85_029_615_042),
        ("h200-sxm-141gb", 150_109_106_995),
    ],
)
def test_memory_is_what_torch_reports(accelerator: str, want_bytes: int) -> None:
    assert CATALOG.accelerator(accelerator).memory_bytes == want_bytes


def test_a_virtual_function_has_less_memory_and_ids_of_its_own() -> None:
    mi300x = CATALOG.accelerator("mi300x")
    assert mi300x.memory_bytes_vf == 205_825_570_242
    assert mi300x.pci_device_ids_vf == ("74b5", "74bd")


def test_units_are_bytes_and_operations_a_second() -> None:
    mi300x = CATALOG.accelerator("mi300x")
    assert mi300x.memory_bandwidth == pytest.approx(5.3e12)
    assert mi300x.fp8_flops == pytest.approx(2.615e15)
    assert mi300x.link_bandwidth == pytest.approx(448e9)
    assert mi300x.pair_bandwidth == pytest.approx(64e9), "a mesh has less to one peer than to all"
    h100 = CATALOG.accelerator("h100-sxm-80gb")
    assert h100.pair_bandwidth == h100.link_bandwidth, "a switch gives one peer everything"


def test_only_fnuz_devices_have_fnuz_numbers() -> None:
    for accelerator in CATALOG.accelerators.values():
        assert (accelerator.fp8_encoding == "e4m3fnuz") == (accelerator.arch == "gfx942")


def test_device_ids_of_instinct_cards_name_one_card_only() -> None:
    seen: dict[str, str] = {}
    for accelerator in CATALOG.accelerators.values():
        if not accelerator.id.startswith("mi"):
            continue
        for pci_id in (*accelerator.pci_device_ids, *accelerator.pci_device_ids_vf):
            assert seen.setdefault(pci_id, accelerator.id) == accelerator.id


def test_unsupported_accelerators_have_a_reason() -> None:
    unsupported = {
        a.id: a.unsupported_reason for a in CATALOG.accelerators.values() if not a.supported
    }
    assert set(unsupported) == {"mi100", "mi350p", "vr-nvl72-288gb"}
    assert all(unsupported.values())


def test_prices_are_dated_and_sourced() -> None:
    prices = {a.id: a.price for a in CATALOG.accelerators.values() if a.price}
    assert prices["mi300x"].usd_per_gpu_hour == Decimal("1.99")
    assert prices["h100-sxm-80gb"].usd_per_gpu_hour == Decimal("2.99")
    assert all(price.date.startswith("2026-") and price.source for price in prices.values())
    assert "mi210" not in prices


def test_a_price_names_an_accelerator_that_exists() -> None:
    text = read_data_file("prices.yaml")
    assert isinstance(text, dict)
    assert set(text["prices"]) <= set(CATALOG.accelerators)


@pytest.mark.parametrize(
    ("version", "want_like", "want_note"),
    [
        (None, "0.32.0", False),
        ("v0.32.0", "0.32.0", False),
        ("0.28.0", "0.28.0", False),
        ("v0.40.0", "0.33.0", True),
        ("v0.27.1", "0.27.0", True),
        ("v0.4.2", "0.6.0", True),
        ("0.26.1rc1.dev156+g0eec856cc", "0.26.0", True),
    ],
)
def test_a_release_behaves_like_the_nearest_older_one(
    version: str | None, want_like: str, want_note: bool
) -> None:
    release = CATALOG.release(version)
    known = CATALOG.releases[want_like]
    assert release.batch_tiers == known.batch_tiers
    assert release.graphs == known.graphs
    assert (release.note is not None) == want_note
    if release.note:
        assert f"planned like {want_like}" in release.note


@pytest.mark.parametrize("version", ["", "latest", "v", "x" * 65])
def test_an_invalid_version_is_refused(version: str) -> None:
    with pytest.raises(ValueError, match="vLLM version"):
        CATALOG.release(version)


def test_versions_compare_by_their_numbers() -> None:
    assert parse_version("v0.9.0") < parse_version("0.27.1rc1") < parse_version("v0.100.0")


@pytest.mark.parametrize(
    ("version", "accelerator", "want"),
    [
        ("v0.32.0", "mi300x", (16384, 1024)),
        ("v0.32.0", "h100-sxm-80gb", (8192, 1024)),
        ("v0.32.0", "a100-sxm-80gb", (2048, 256)),
        ("v0.32.0", "l40s", (2048, 256)),
        ("v0.22.1", "mi300x", (8192, 1024)),
        ("v0.8.1", "h100-sxm-80gb", (8192, 1024)),
        ("v0.8.1", "mi300x", (2048, 1024)),
        ("v0.8.5", "mi300x", (8192, 1024)),
        ("v0.7.3", "mi300x", (2048, 256)),
    ],
)
def test_default_batches_go_by_device_memory(
    version: str, accelerator: str, want: tuple[int, int]
) -> None:
    device = CATALOG.accelerator(accelerator)
    assert device.memory_bytes is not None
    tier = CATALOG.release(version).batch_tier(device.memory_bytes, device.id)
    assert (tier.max_num_batched_tokens, tier.max_num_seqs) == want


def test_every_release_has_a_tier_for_the_smallest_device() -> None:
    for release in CATALOG.releases.values():
        assert isinstance(release.batch_tier(1, "any"), BatchTier)


def test_every_release_has_figures_for_both_vendors() -> None:
    for release in CATALOG.releases.values():
        for vendor in Vendor:
            assert 1 in release.non_torch_bytes[vendor]
            assert 1 in release.graphs.piece_bytes[vendor]
            assert vendor in release.profile_run.sampler
            assert vendor in release.uncertainty.non_torch_bytes
        assert "default" in release.libraries.blas_bytes


def test_releases_are_listed_oldest_first() -> None:
    listed = list(CATALOG.releases)
    assert listed == sorted(listed, key=parse_version)


def test_a_tier_for_some_accelerators_names_ones_that_exist() -> None:
    for release in CATALOG.releases.values():
        for tier in release.batch_tiers:
            named = (tier.accelerators or frozenset()) | tier.except_accelerators
            assert named <= set(CATALOG.accelerators)


def test_encoders_are_those_of_classes_that_are_served() -> None:
    usual = encoder_item("NoSuchClass")
    assert encoder_item("Qwen2VLForConditionalGeneration").clips == 7
    assert usual == encoder_item("NorThisOne")
    named = set(encoders_module._load().encoders) - {"default"}
    assert named <= CATALOG.architectures.served | set(CATALOG.architectures.unsized) | set(
        CATALOG.architectures.removed
    )


@pytest.mark.parametrize(
    ("vendor", "version", "cuda", "want"),
    [
        (Vendor.AMD, None, None, "vllm/vllm-openai-rocm:v0.32.0"),
        (Vendor.AMD, "v0.27.1", (12, 8), "vllm/vllm-openai-rocm:v0.27.1"),
        (Vendor.NVIDIA, "0.27.1", None, "vllm/vllm-openai:v0.27.1"),
        (Vendor.NVIDIA, "v0.32.0", (13, 1), "vllm/vllm-openai:v0.32.0"),
        (Vendor.NVIDIA, "v0.32.0", (12, 9), "vllm/vllm-openai:v0.32.0-cu129"),
        (Vendor.NVIDIA, None, (12, 2), "vllm/vllm-openai:v0.32.0-cu129"),
        (Vendor.NVIDIA, None, (11, 4), "vllm/vllm-openai:v0.32.0-cu129"),
        (Vendor.NVIDIA, "v0.19.1", (12, 4), "vllm/vllm-openai:v0.19.1"),
    ],
)
def test_images_by_vendor_and_driver(
    vendor: Vendor, version: str | None, cuda: tuple[int, int] | None, want: str
) -> None:
    assert CATALOG.image(vendor, version, cuda) == want


@pytest.mark.parametrize(
    ("branch", "want"),
    [(580, (13, 0)), (590, (13, 0)), (572, (12, 8)), (470, (11, 0)), (390, None)],
)
def test_the_cuda_of_a_driver(branch: int, want: tuple[int, int] | None) -> None:
    assert CATALOG.images[Vendor.NVIDIA].cuda_of_driver(branch) == want


@pytest.mark.parametrize("text", ["", "13", "a.b", "12.", "12.9.1.1", "١٢.٩", "1" * 50 + ".0"])
def test_an_invalid_cuda_version_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected two numbers"):
        parse_cuda_version(text)


def test_clouds_and_partitions_name_accelerators_that_exist() -> None:
    partitioning = load_partitioning()
    named = {*load_cloud_matches(), *partitioning.compute_partitions.accelerators}
    assert named | set(partitioning.mig.slices) <= set(CATALOG.accelerators)


def test_a_cloud_label_of_two_accelerators_needs_another_label() -> None:
    seen: dict[tuple[str, str], str] = {}
    for accelerator_id, matches in load_cloud_matches().items():
        for match in matches:
            for value in match.values:
                other = seen.setdefault((match.label, value), accelerator_id)
                assert other == accelerator_id or value == "a100"


def test_a_data_file_with_a_misspelt_key_is_refused() -> None:
    TypeAdapter(CompatibilityRule).validate_python(RULE)
    with pytest.raises(ValidationError, match="vendor"):
        TypeAdapter(CompatibilityRule).validate_python({**RULE, "when": {"vendor": ["amd"]}})


INCOMPLETE: list[tuple[dict[str, Any], str]] = [
    ({"when": {}}, "at least one condition"),
    ({"evidence": []}, "evidence"),
    ({"outcome": "refused"}, "instead"),
    ({"instead": "use another"}, "instead"),
    ({"outcome": "setting"}, "settings"),
    ({"settings": {"env": {"A": "1"}}}, "settings"),
    ({"name": "lower case"}, "name"),
    ({"expires": "soon"}, "expires"),
]


@pytest.mark.parametrize(("fields", "named"), INCOMPLETE)
def test_an_incomplete_rule_is_refused(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(ValidationError, match=named):
        TypeAdapter(CompatibilityRule).validate_python({**RULE, **fields})


def test_an_unknown_rule_names_the_nearest_ones() -> None:
    assert CATALOG.rule("Nvfp4Emulated").name == "Nvfp4Emulated"
    with pytest.raises(UnknownRuleError, match="did you mean: Nvfp4Emulated"):
        CATALOG.rule("NvFp4Emulated")
    with pytest.raises(UnknownRuleError, match="expected one of UnsupportedAccelerator, "):
        CATALOG.rule("?" * 300)


METHODS: list[tuple[str, str, str | None, MethodStatus | None]] = [
    ("gguf", "0.23.0", "gguf", MethodStatus.SERVED),
    ("gguf", "0.24.0", "gguf", MethodStatus.PLUGIN),
    ("aqlm", "0.32.0", "aqlm", MethodStatus.REMOVED),
    ("mxfp8", "0.9.2", "mxfp8", MethodStatus.NEWER),
    ("auto-round", "0.32.0", "inc", MethodStatus.SERVED),
    ("auto-round", "0.9.2", "auto-round", MethodStatus.SERVED),
    ("novel", "0.32.0", None, None),
]


@pytest.mark.parametrize(("name", "version", "want", "status"), METHODS)
def test_quantization_methods_by_release(
    name: str, version: str, want: str | None, status: MethodStatus | None
) -> None:
    resolved = CATALOG.quantization_methods.resolve(name, version)
    assert (resolved[0] if resolved else None) == want
    assert (resolved[1].status(version) if resolved else None) == status


def test_no_architecture_is_both_served_and_removed() -> None:
    known = CATALOG.architectures
    assert not known.served & set(known.removed)
    assert not known.served & known.pooling
    assert known.no_pipeline <= known.served | set(known.unsized)
