"""Real label sets of every labeller, cloud and mode, and the expected recognition of each."""

import pytest

from tests.support.fleets.node_fixtures import (
    NodeFixture,
    node_fixtures,
    other_cards_after_losing_labels,
    what_is_wrong,
)
from tonnage.catalog.load import load_catalog
from tonnage.fleet.devices.recognize import Recogniser

CATALOG = load_catalog()
RECOGNISER = Recogniser(CATALOG)
FIXTURES = list(node_fixtures())


def ids(fixture: NodeFixture) -> str:
    return f"{fixture.file}-{fixture.name}"


@pytest.mark.parametrize("fixture", FIXTURES, ids=ids)
def test_a_node_is_recognised_correctly(fixture: NodeFixture) -> None:
    assert what_is_wrong(fixture, RECOGNISER) is None


KNOWN = [fixture for fixture in FIXTURES if "accelerator" in fixture.expect]


@pytest.mark.parametrize("fixture", KNOWN, ids=ids)
def test_a_node_without_one_label_is_never_recognised_as_another(fixture: NodeFixture) -> None:
    assert other_cards_after_losing_labels(fixture, RECOGNISER) == []


def test_every_accelerator_appears_through_its_vendors_labeller() -> None:
    covered = {
        fixture.expect["accelerator"]
        for fixture in KNOWN
        if fixture.file in ("gfd", "amd_labeller")
    }
    assert set(CATALOG.accelerators) - covered == {"vr-nvl72-288gb"}  # no product name is known


def test_every_partition_mode_of_the_catalogue_appears() -> None:
    covered = {
        (fixture.expect["accelerator"], fixture.expect["partition"].partition("_")[0])
        for fixture in KNOWN
        if fixture.file == "amd_partitions" and "partition" in fixture.expect
    }
    modes = {
        (accelerator.id, partition.mode)
        for accelerator in CATALOG.accelerators.values()
        for partition in accelerator.compute_partitions
        if accelerator.memory_bytes is not None
    }
    assert modes - covered == set()


def test_every_label_of_a_cloud_appears() -> None:
    labels = {
        match.label
        for accelerator in CATALOG.accelerators.values()
        for match in accelerator.matches
        if not match.label.startswith(("amd.com/", "nvidia.com/", "kubernetes.io/"))
    }
    seen = {label for fixture in KNOWN for label in fixture.body["metadata"]["labels"]}
    assert labels <= seen
