"""The disk for weights that a platform team declares, and the field that each error names."""

from typing import Any

import pytest

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.pool import AcceleratorPoolSpec


def parse(weights: object) -> AcceleratorPoolSpec:
    return parse_model(
        AcceleratorPoolSpec, {"nodeSelector": {"a": "b"}, "weights": weights}, "spec"
    )


def test_a_disk_has_a_directory_and_a_time_by_default() -> None:
    disk = parse({"nodeDisk": {"capacity": "2Ti"}}).node_disk
    assert disk is not None
    assert (disk.path, disk.ttl_seconds_after_last_use) == ("/var/lib/tonnage/weights", 2592000)
    assert parse({}).node_disk is None
    assert parse(None).node_disk is None


@pytest.mark.parametrize(
    ("disk", "want"),
    [
        ({}, "capacity"),
        ({"capacity": "much"}, "capacity"),
        ({"capacity": "-1Gi"}, "capacity"),
        ({"capacity": 5}, "capacity"),
        ({"capacity": "1Ti", "path": ""}, "path"),
        ({"capacity": "1Ti", "path": "/"}, "path"),
        ({"capacity": "1Ti", "path": "mnt/nvme"}, "path"),
        ({"capacity": "1Ti", "path": "/mnt/nvme/"}, "path"),
        ({"capacity": "1Ti", "path": "/mnt//nvme"}, "path"),
        ({"capacity": "1Ti", "path": "/mnt/../etc"}, "path"),
        ({"capacity": "1Ti", "path": "/mnt/$(HF_TOKEN)"}, "path"),
        ({"capacity": "1Ti", "path": "/" + "a" * 200}, "path"),
        ({"capacity": "1Ti", "ttlSecondsAfterLastUse": 0}, "ttlSecondsAfterLastUse"),
        ({"capacity": "1Ti", "ttlSecondsAfterLastUse": "1d"}, "ttlSecondsAfterLastUse"),
        ({"capacity": "1Ti", "ttlSecondsAfterLastUse": 2**31}, "ttlSecondsAfterLastUse"),
        ({"capacity": "1Ti", "prefetch": "All"}, "prefetch"),
    ],
)
def test_a_wrong_disk_is_refused_with_the_field(disk: dict[str, Any], want: str) -> None:
    with pytest.raises(InvalidSpecError) as error:
        parse({"nodeDisk": disk})
    assert f"spec.weights.nodeDisk.{want}" in str(error.value)
