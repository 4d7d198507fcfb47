"""Reading amounts of CPU, memory and ephemeral storage."""

from typing import Any

import pytest

from tonnage.api.pool import NodeDisk
from tonnage.fleet.nodes.amounts import (
    as_resources,
    read_amounts,
    read_capacity,
    read_size,
)
from tonnage.fleet.resources import UNKNOWN, Resources

GIB = 2**30

QUANTITIES: dict[str, tuple[str, Any, int]] = {
    "cores": ("cpu", "8", 8000),
    "thousandths of a core": ("cpu", "250m", 250),
    "part of a core": ("cpu", "1.5", 1500),
    "a number": ("cpu", 2, 2000),
    "less than a thousandth counts as one": ("cpu", "1u", 1),
    "bytes": ("memory", "123", 123),
    "binary suffix": ("memory", "2Gi", 2 * GIB),
    "decimal suffix": ("memory", "2G", 2 * 10**9),
    "exponent": ("memory", "1e3", 1000),
    "kubelets report KiB": ("ephemeral-storage", "1048576Ki", GIB),
    "too much to count": ("memory", "9" * 24 + "E", UNKNOWN),
}


@pytest.mark.parametrize(("name", "text", "want"), QUANTITIES.values(), ids=QUANTITIES)
def test_a_quantity_is_read(name: str, text: Any, want: int) -> None:
    assert read_amounts({name: text}) == {name: want}


@pytest.mark.parametrize("text", ["", "-1", "1 Gi", "1x", None, [], True, float("nan"), "1e999"])
def test_what_is_no_quantity_is_left_out(text: object) -> None:
    assert read_amounts({"memory": text}) == {}


def test_other_resources_are_left_out() -> None:
    assert read_amounts({"pods": "110", "nvidia.com/gpu": "8", "cpu": "1"}) == {"cpu": 1000}
    assert read_amounts("no map") == {}


def test_what_a_node_does_not_state_is_enough_for_every_pod() -> None:
    assert read_size({"cpu": "4"}) == Resources(4000, UNKNOWN, UNKNOWN)


def test_what_a_pod_does_not_request_is_nothing() -> None:
    assert as_resources({"memory": GIB}) == Resources(0, GIB, 0)


@pytest.mark.parametrize(
    ("capacity", "want"),
    [
        ("2Ti", 2 * 2**40),
        ("1.5k", 1500),
        ("1.9", 1),
        ("999m", 0),
        ("1.1Gi", 1181116006),
        ("0." + "9" * 30, 0),
        ("1" * 31 + "T", int("1" * 31) * 10**12),
    ],
)
def test_a_part_of_a_byte_of_a_disk_holds_nothing(capacity: str, want: int) -> None:
    assert read_capacity(NodeDisk(capacity=capacity)) == want
