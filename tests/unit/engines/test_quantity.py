"""Quantities in the API server's form."""

import pytest

from tonnage.engines.quantity import format_canonical, gibibytes


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("1", "1"),
        ("0", "0"),
        ("0Gi", "0"),
        ("0.5", "500m"),
        ("1000m", "1"),
        ("1500m", "1500m"),
        ("4000m", "4"),
        ("2.0", "2"),
        ("100", "100"),
        ("1000", "1k"),
        ("1024", "1024"),
        ("1024Mi", "1Gi"),
        ("2048Mi", "2Gi"),
        ("1.5Gi", "1536Mi"),
        ("16Gi", "16Gi"),
        ("1025Mi", "1025Mi"),
        ("0.1Gi", "107374182400m"),
        ("0.5Ki", "512"),
        ("1Ki", "1Ki"),
        ("5000M", "5G"),
        ("0.1m", "1m"),
        ("1.0001", "1001m"),
    ],
)
def test_quantity_is_written_as_the_server_writes_it(text: str, want: str) -> None:
    assert format_canonical(text) == want


def test_gibibytes_take_the_largest_suffix() -> None:
    assert [gibibytes(1), gibibytes(17), gibibytes(2048)] == ["1Gi", "17Gi", "2Ti"]
