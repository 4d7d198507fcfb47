"""GPUs that a driver withdraws while a pod has them: the claim keeps them until the pod ends."""

from itertools import permutations

import pytest

from tests.support.fleets.dra_objects import (
    H100,
    NVIDIA_RESOURCE,
    claim,
    dra_node,
    gpu_slice,
    nvidia_device,
    raw_slice,
)
from tests.support.fleets.gpu_nodes import gpu_pod_body
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.api.parse import parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.catalog.load import load_catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.dra.read import read_claim, read_slice
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import DeclaredPool, Reservation
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod

POOL = "chat"
GPUS = [f"gpu-{index}" for index in range(8)]


def running(limits=None):
    """A replica on node `n`, as the API server has it."""
    labels = {LABEL_OWNER: "llama", LABEL_PLACEMENT: "x"}
    body = gpu_pod_body("p", node="n", labels=labels)
    body["metadata"]["uid"] = "u"
    body["spec"] |= {"resourceClaims": [{"name": "gpus"}], "containers": [{"name": "vllm"}]}
    if limits:
        body["spec"]["containers"][0]["resources"] = {"limits": limits}
    return body


def shrunk(gpus):
    """What the driver lists of node `n` now, None: nothing."""
    if gpus is None:
        return None
    devices = [nvidia_device(H100, index) for index in range(8)]
    return read_slice(raw_slice("n", devices[8 - gpus :], name="n"))


def fleet_after(events):
    """A declared pool of two nodes in which a replica of eight GPUs runs on `n`."""
    fleet = Fleet(load_catalog())
    spec = parse_model(AcceleratorPoolSpec, {"nodeSelector": {"team": POOL}}, "spec")
    fleet.declare(DeclaredPool(POOL, {}, spec))
    for name in ("n", "m"):
        fleet.put_node(read_node(dra_node(name, {"team": POOL})))
    fleet.put_slice(read_slice(gpu_slice("m")))
    owner = (running()["metadata"]["namespace"], "llama")
    fleet.reserve(owner, [Reservation(owner, "x", POOL, Footprint(8), 1)])
    for event in events:
        event(fleet)
    return fleet


def free_of(fleet):
    return {node.name: node.free for pool in fleet.pools() for node in pool.nodes}


@pytest.mark.parametrize("left", [7, 1, 0, None])
@pytest.mark.parametrize("limits", [None, {NVIDIA_RESOURCE: "8"}])
def test_a_replica_keeps_its_gpus_and_needs_no_others(left, limits):
    """The driver lists unhealthy GPUs no more, or is updated: the pod runs on."""

    def withdraw(fleet):
        after = shrunk(left)
        fleet.remove_slice("n") if after is None else fleet.put_slice(after)

    events = [
        lambda fleet: fleet.put_slice(shrunk(8)),
        lambda fleet: fleet.put_claim(read_claim(claim("c", "n", GPUS, pods=["u"]))),
        lambda fleet: fleet.put_pod(read_gpu_pod(running(limits))),
        withdraw,
    ]
    fleet = fleet_after(events)
    assert free_of(fleet) == {"n": 0, "m": 8}
    (pod,) = fleet.pods_of((running()["metadata"]["namespace"], "llama"))
    assert pod.gpus == 8
    for order in permutations(events[1:]):  # such as of an operator that starts later
        assert free_of(fleet_after(order)) == {"n": 0, "m": 8}


@pytest.mark.parametrize("labels", [{}, {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}])
def test_the_gpus_are_not_assumed_again_while_the_node_is_in_no_pool_of_the_driver(labels):
    """While its driver is updated, the node is in no pool, or in that of its labels."""
    fleet = Fleet(load_catalog())
    name, owner = "nvidia-h100-sxm-80gb-dra", (running()["metadata"]["namespace"], "llama")
    for node in ("n", "m"):
        fleet.put_node(read_node(dra_node(node, labels)))
        fleet.put_slice(read_slice(gpu_slice(node)))
    fleet.put_claim(read_claim(claim("c", "n", GPUS, pods=["u"])))
    fleet.put_pod(read_gpu_pod(running()))
    fleet.reserve(owner, [Reservation(owner, "x", name, Footprint(8), 1)])
    assert free_of(fleet) == {"n": 0, "m": 8}
    fleet.remove_slice("n-gpu.nvidia.com")
    assert free_of(fleet)["m"] == 8
    assert fleet.assumed_gpus(name) == 0
    fleet.remove_node("n")  # the replica is lost with it
    assert free_of(fleet)["m"] == 0


def test_the_next_pod_of_the_claim_holds_them():
    """A claim that several pods share is held by one of them, also where nothing is listed."""
    other = running()
    other["metadata"] |= {"uid": "v", "name": "q"}
    fleet = fleet_after(
        [
            lambda fleet: fleet.put_claim(read_claim(claim("c", "n", GPUS, pods=["u", "v"]))),
            lambda fleet: fleet.put_pod(read_gpu_pod(running())),
            lambda fleet: fleet.put_pod(read_gpu_pod(other)),
        ]
    )
    owner = (running()["metadata"]["namespace"], "llama")
    assert {pod.uid: pod.gpus for pod in fleet.pods_of(owner)} == {"u": 8, "v": 0}
    fleet.remove_pod("u")
    assert {pod.uid: pod.gpus for pod in fleet.pods_of(owner)} == {"v": 8}
    fleet.remove_claim("uid-c")
    assert {pod.uid: pod.gpus for pod in fleet.pods_of(owner)} == {"v": 0}
