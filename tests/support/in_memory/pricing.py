"""Pools with prices, and where that brings the replicas of an object."""

from typing import Any, Final

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tonnage.kube.kinds import ACCELERATOR_POOLS

SELECTORS: Final = {
    "mi300x": {"amd.com/gpu.device-id": "74a1"},
    "h100": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"},
    "l40s": {"nvidia.com/gpu.product": "NVIDIA-L40S"},
    "a": {"team": "a"},
    "b": {"team": "b"},
}
ONE_H100: Final = {**H100, "gpusPerNode": 1}


def price(cluster: Cluster, pool: str, cost: str, **spec: Any) -> None:
    """What a platform team does when it declares a pool with a price, or changes that."""
    spec = {"nodeSelector": SELECTORS[pool], "costPerGPUHour": cost, **spec}
    metadata = {"name": pool, "labels": {"team": pool}}
    cluster.api.put(ACCELERATOR_POOLS, {"metadata": metadata, "spec": spec})
    cluster.watch()


def place_of(cluster: Cluster, name: str = "llama") -> Any:
    """The one placement in an object's status."""
    (placement,) = cluster.status(name)["placements"]
    return placement


async def on_h100(**placement: Any) -> Cluster:
    """An object on the only H100, since that costs less than an MI300X."""
    cluster = Cluster(ONE_H100, MI300X)
    price(cluster, "h100", "1")
    cluster.apply("llama", spec_of(placement=placement))
    await cluster.settle()
    assert place_of(cluster)["pool"] == "h100"
    return cluster
