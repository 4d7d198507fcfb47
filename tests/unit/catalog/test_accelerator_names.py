"""Accelerators have the names that people give them: ids, families, vendors and product names."""

import pytest

from tonnage.catalog.accelerator_names import is_named
from tonnage.catalog.catalog import UnknownAcceleratorError
from tonnage.catalog.load import load_catalog

CATALOG = load_catalog()
H100 = ["h100-sxm-80gb", "h100-pcie-80gb", "h100-nvl-94gb"]

NAMES: list[tuple[str, list[str]]] = [
    # ids
    ("mi300x", ["mi300x"]),
    ("MI300X", ["mi300x"]),
    ("H100-SXM-80GB", ["h100-sxm-80gb"]),
    ("h100_sxm_80gb", ["h100-sxm-80gb"]),
    ("rtx4090", ["rtx-4090"]),
    ("l4", ["l4"]),
    # families
    ("H100", H100),
    ("h100-80gb", ["h100-sxm-80gb", "h100-pcie-80gb"]),
    ("h100-sxm", ["h100-sxm-80gb"]),
    ("A100 80GB", ["a100-sxm-80gb", "a100-pcie-80gb"]),
    ("rx-7900", ["rx-7900-xtx", "rx-7900-xt"]),
    ("h20", ["h20-96gb"]),
    ("b200", ["b200-180gb"]),
    # product names
    ("Instinct MI300X", ["mi300x"]),
    ("AMD Instinct MI300X", ["mi300x"]),
    ("NVIDIA H100 PCIe", ["h100-pcie-80gb"]),
    ("NVIDIA H100 SXM5 80GB", ["h100-sxm-80gb"]),
    ("GeForce RTX 4090", ["rtx-4090"]),
]


@pytest.mark.parametrize(("name", "want"), NAMES)
def test_a_name_in_any_case_means_its_accelerators(name: str, want: list[str]) -> None:
    assert [one.id for one in CATALOG.accelerators_named(name)] == want


@pytest.mark.parametrize("name", ["amd", "AMD", "nvidia", "NVIDIA"])
def test_a_vendor_means_all_of_its_accelerators(name: str) -> None:
    want = [one.id for one in CATALOG.accelerators.values() if one.vendor == name.lower()]
    assert len(want) > 5
    assert [one.id for one in CATALOG.accelerators_named(name)] == want


def test_every_id_and_product_name_means_one_accelerator() -> None:
    for accelerator in CATALOG.accelerators.values():
        for name in (accelerator.id, accelerator.id.upper(), accelerator.name):
            assert CATALOG.accelerators_named(name) in ((accelerator,), [accelerator]), name


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("l40", "l40s"),  # another card than the L40S
        ("a10", "a100-"),
        ("mi300", "mi300x"),
        ("H100s", "h100-"),
        ("rtx-6000", "rtx-pro-6000-bse"),
        ("mi30x", "mi300x"),
    ],
)
def test_another_name_is_refused_with_the_nearest_ones(name: str, want: str) -> None:
    with pytest.raises(UnknownAcceleratorError, match=rf"{name!r} .* did you mean: .*{want}"):
        CATALOG.accelerators_named(name)


@pytest.mark.parametrize("name", ["", "-", "80gb", "sxm", "amd h100", "x" * 100_000])
def test_a_name_near_none_is_refused_with_the_command_that_lists_all(name: str) -> None:
    with pytest.raises(UnknownAcceleratorError, match="`tonnage accelerators` lists all") as error:
        CATALOG.accelerators_named(name)
    assert len(str(error.value)) < 300
    assert not any(is_named(one, name) for one in CATALOG.accelerators.values())


def test_where_one_is_expected_a_family_is_refused_with_its_members() -> None:
    assert CATALOG.accelerator("H200-SXM").id == "h200-sxm-141gb"
    want = "'H100' is a name of 3: expected one of h100-sxm-80gb, h100-pcie-80gb, h100-nvl-94gb"
    with pytest.raises(UnknownAcceleratorError, match=want):
        CATALOG.accelerator("H100")
