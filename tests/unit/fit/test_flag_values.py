"""Sizes on the command line: counts as vLLM reads them, and bytes with their unit."""

import argparse

import pytest

from tonnage.fit.flag_values import byte_size, size

GB, GIB = 10**9, 2**30


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("65536", 65536),
        ("64k", 64_000),
        ("64K", 65_536),
        ("20G", 20 * GIB),
        ("20Gi", 20 * GIB),
        ("20GB", 20 * GB),
    ],
)
def test_a_letter_alone_means_what_vllm_takes_it_for(text: str, want: int) -> None:
    assert size(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("141107412992", 141107412992),
        ("80GB", 80 * GB),
        ("80gB", 80 * GB),
        ("0.5TB", 500 * GB),
        ("1.5KB", 1500),
        ("80Gi", 80 * GIB),
        ("80GiB", 80 * GIB),
        ("79.2GiB", 85040352460),
    ],
)
def test_bytes_have_the_units_of_powers_of_1000_and_of_1024(text: str, want: int) -> None:
    assert byte_size(text) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("80G", r"'80G' is ambiguous: expected 80GB \(powers of 1000\) or 80GiB"),
        ("80g", r"'80g' is ambiguous: expected 80GB \(powers of 1000\) or 80GiB"),
        ("80 GB", "'80 GB' is no size"),
        ("GB", "'GB' is no size"),
        ("0GB", "'0GB' is out of range"),
    ],
)
def test_bytes_that_can_mean_two_sizes_or_none_are_refused(text: str, want: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=want):
        byte_size(text)
