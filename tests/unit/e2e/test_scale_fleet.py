"""What the benchmark of a large fleet prepares and prints."""

import pytest

from benchmarks.cluster.fleet_cluster import FleetSize
from benchmarks.cluster.fleet_objects import FreeCapacity, fleet_nodes, fleet_slices
from benchmarks.pages.fleet_figures import FleetSample, fleet_figures, fleet_table
from benchmarks.pages.fleet_plot import exponent
from tonnage.fleet.devices.resources import gpu_counts
from tonnage.fleet.dra.read import read_claim, read_slice


def test_a_fleet_has_a_figure_for_each_bar():
    sample = FleetSample(10_000, 40_000, 5_000, start_seconds=46.0, idle_seconds=600.0)
    verdicts = {figure.name.split(": ", 1)[1]: figure.verdict for figure in fleet_figures(sample)}
    assert verdicts["start until all objects are reconciled"] == "missed"
    assert verdicts["writes, idle for 600 s"] == "met"
    assert len(verdicts) == 7
    table = fleet_table([sample, sample])
    assert {len(row) for row in table.rows} == {len(table.columns)} == {3}


def test_a_part_of_a_fleet_has_that_share_of_everything():
    assert FleetSize(10_000, 40_000, 5_000).part(0.1) == FleetSize(1_000, 4_000, 500)


def test_pods_of_other_workloads_are_spread_and_take_capacity():
    nodes, capacity = fleet_nodes(4), FreeCapacity()
    capacity.add_nodes(nodes)
    pods = list(capacity.other_pods(6, nodes))
    assert [pod["spec"]["nodeName"] for pod in pods] == [
        *(node["metadata"]["name"] for node in nodes),
        *(node["metadata"]["name"] for node in nodes[:2]),
    ]
    assert list(capacity.free.values()) == [4, 4, 6, 6]


def test_each_device_of_a_fleet_with_slices_is_held_by_one_claim():
    nodes, capacity = fleet_nodes(2, dra=True), FreeCapacity()
    slices = list(fleet_slices(nodes))
    capacity.add_nodes(nodes)
    capacity.add_slices(slices)
    pods = list(capacity.other_pods(6, nodes))
    claims = [read_claim(body) for body in capacity.claims]
    assert [claim.pods for claim in claims] == [(pod["metadata"]["uid"],) for pod in pods]
    held = [device for claim in claims for device in claim.devices]
    assert len(held) == len(set(held)) == 12
    listed = {
        (one.driver, one.pool, device.name)
        for one in map(read_slice, slices)
        for device in one.devices
    }
    assert set(held) < listed
    assert len(listed) == 16
    assert not any(gpu_counts(node["status"]["allocatable"])[0] for node in nodes)


def test_a_larger_fleet_begins_with_the_smaller_one():
    assert fleet_nodes(6)[:4] == fleet_nodes(4)
    assert fleet_nodes(6, 4) == fleet_nodes(6)[4:]


def test_growth_is_the_exponent_of_a_power_law():
    assert exponent([1, 2, 4], [3.0, 6.0, 12.0]) == pytest.approx(1.0)
    assert exponent([1, 2, 4], [1.0, 4.0, 16.0]) == pytest.approx(2.0)
