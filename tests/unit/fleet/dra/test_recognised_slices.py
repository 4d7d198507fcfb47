"""What a node is taken for by the ResourceSlices of both drivers, in two releases each."""

from pathlib import Path

import pytest
import yaml

from tests.support.fleets.dra_objects import DEVICE_OF, dra_node, driver_of, gpu_slice
from tonnage.catalog.load import load_catalog
from tonnage.fleet.dra.read import read_slice
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import FleetSnapshot
from tonnage.fleet.nodes.node import read_node

KINDS = yaml.safe_load(
    (Path(__file__).parents[3] / "data" / "dra_nodes.yaml").read_text(encoding="utf-8")
)
CASES = [
    pytest.param(kind, release, id=f"{kind['expect']}-{release}")
    for kind in KINDS
    for release in DEVICE_OF
    if release.startswith(driver_of(kind).split(".")[1])
]


def pools_of(node, *slices):
    snapshot = FleetSnapshot((read_node(node),), slices=tuple(map(read_slice, slices)))
    return build_pools(snapshot, load_catalog())


def arm(kind):
    return {"kubernetes.io/arch": "arm64"} if kind["expect"].startswith(("gh", "gb")) else {}


def test_there_are_twenty_kinds_of_node():
    assert len({kind["expect"] for kind in KINDS}) >= 20


@pytest.mark.parametrize(("kind", "release"), CASES)
def test_the_accelerator_is_recognised(kind, release):
    pool, *others = pools_of(
        dra_node("n", arm(kind)), gpu_slice("n", kind, device=DEVICE_OF[release])
    )
    assert not others
    assert pool.accelerator is not None, pool.unrecognised
    assert pool.accelerator.id == kind["expect"]
    assert pool.name == f"{pool.accelerator.vendor}-{kind['expect']}-dra"
    assert pool.nodes[0].unusable is None
    assert (pool.total, pool.free) == (8, 8)


@pytest.mark.parametrize(("kind", "release"), CASES)
def test_no_card_is_guessed_without_its_name(kind, release):
    def nameless(kind, index):
        device = DEVICE_OF[release](kind, index)
        for name in ("productName", "deviceID"):
            device["attributes"].pop(name, None)
        return device

    (pool,) = pools_of(dra_node("n"), gpu_slice("n", kind, device=nameless))
    assert pool.accelerator is None
    assert "names the accelerator" in pool.unrecognised


@pytest.mark.parametrize(("kind", "release"), CASES)
def test_no_card_is_guessed_by_a_similar_name(kind, release):
    def renamed(kind, index):
        device = DEVICE_OF[release](kind, index)
        device["attributes"]["productName"] = {"string": kind["product"] + "e"}
        device["attributes"].pop("deviceID", None)
        return device

    (pool,) = pools_of(dra_node("n"), gpu_slice("n", kind, device=renamed))
    assert pool.accelerator is None


@pytest.mark.parametrize(("kind", "release"), CASES)
def test_a_memory_of_0_is_unknown_and_the_catalogue_has_it(kind, release):
    (pool,) = pools_of(
        dra_node("n", arm(kind)), gpu_slice("n", kind | {"memory": 0}, device=DEVICE_OF[release])
    )
    assert pool.accelerator is not None, pool.unrecognised
    assert pool.device_bytes == pool.accelerator.memory_bytes


def test_equal_nodes_share_their_devices_in_memory():
    one, other = gpu_slice("a"), gpu_slice("b")
    attributes = other["spec"]["devices"][0]["attributes"]
    attributes["uuid"] = {"string": "GPU-of-another-node"}
    assert read_slice(one).devices is read_slice(other).devices
    attributes["productName"] = {"string": "NVIDIA H200"}
    assert read_slice(one).devices != read_slice(other).devices


def test_an_attribute_of_two_kinds_has_the_first_of_them():
    body = gpu_slice("n", gpus=1)
    body["spec"]["devices"][0]["attributes"]["gpu.nvidia.com/productName"] = {"int": 7}
    body["spec"]["devices"][0]["attributes"]["productName"]["int"] = 8
    (device,) = read_slice(body).devices
    assert device.attribute("gpu.nvidia.com/productName") == "NVIDIA H100 80GB HBM3"
