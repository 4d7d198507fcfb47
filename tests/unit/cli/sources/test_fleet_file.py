"""The fleet file of `tonnage run`: the kinds it loads, and errors with their position."""

import pytest
import yaml

from tests.support.fleets.objects import node
from tonnage.cli.sources.fleet_file import read_fleet_file
from tonnage.manager.fleet_file import FleetFileError

NODE = {"apiVersion": "v1", "kind": "Node", **node()}
POOL = {
    "apiVersion": "tonnage.dev/v1alpha1",
    "kind": "AcceleratorPool",
    "metadata": {"name": "amd"},
    "spec": {"nodeSelector": {"team": "chat"}},
}
PRIORITY = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": "first"},
    "value": 9,
}


def file_of(folder, *bodies):
    path = folder / "fleet.yaml"
    path.write_text(yaml.safe_dump_all(bodies), "utf-8")
    return str(path)


def test_kinds_of_the_fleet_are_read_and_others_are_ignored(tmp_path):
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}
    bodies = read_fleet_file(file_of(tmp_path, NODE, POOL, config_map, PRIORITY))
    assert [body["kind"] for body in bodies] == ["Node", "AcceleratorPool", "PriorityClass"]
    assert all("uid" in body["metadata"] for body in bodies)


def test_a_list_as_kubectl_prints_it_is_read(tmp_path):
    listed = {"apiVersion": "v1", "kind": "List", "items": [NODE]}
    assert [body["metadata"]["name"] for body in read_fleet_file(file_of(tmp_path, listed))] == [
        NODE["metadata"]["name"]
    ]


REFUSED = {
    "no node": ([POOL], "holds no Node"),
    "a pool that cannot be read": (
        [NODE, POOL | {"spec": {"nodeSelector": {}, "costPerGPUHour": "much"}}],
        "costPerGPUHour",
    ),
    "a pool with a field that there is not": (
        [NODE, POOL | {"spec": {"nodeSelector": {"a": "b"}, "wieght": 1}}],
        "wieght",
    ),
    "a node without a name": ([NODE | {"metadata": {}}], "name"),
    "a priority that is no number": (
        [NODE, PRIORITY | {"value": "high"}],
        "PriorityClass first: .*'high'",
    ),
}


@pytest.mark.parametrize(("bodies", "want"), REFUSED.values(), ids=REFUSED)
def test_an_invalid_file_is_refused_as_a_whole_with_the_position(tmp_path, bodies, want):
    with pytest.raises(FleetFileError, match=want) as caught:
        read_fleet_file(file_of(tmp_path, *bodies))
    assert "fleet.yaml" in str(caught.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(FleetFileError, match=r"fleet\.yaml cannot be read: No such file"):
        read_fleet_file(str(tmp_path / "fleet.yaml"))
