"""An object whose replicas run on several pools, in a cluster in memory."""

from typing import Any

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED
from tonnage.kube.kinds import PODS
from tonnage.kube.protocol import Object

HOUR = 3600
MI300X_POOL, H100_POOL, L40S_POOL = "amd-mi300x", "nvidia-h100-sxm-80gb", "nvidia-l40s"
MI300X_CHILD, H100_CHILD = "llama-mi300x", "llama-h100-sxm-80gb"
OTHER_ARGUMENTS = {"vllm": {"extraArgs": ["--disable-log-requests"]}}


def spread(replicas: int | None, policy: str = "WhenShort", **spec: Any) -> Object:
    """A spec whose replicas may be spread; further fields of the placement by `placement`."""
    how = {"policy": policy, **spec.pop("bounds", {})}
    placement = {"spread": how, **spec.pop("placement", {})}
    whole_spec = spec_of(replicas=replicas, placement=placement, **spec)
    return {key: value for key, value in whole_spec.items() if value is not None}


def by_pool(cluster: Cluster) -> dict[str, int]:
    """Replicas by pool, as status tells them."""
    return {
        placement["pool"]: placement["replicas"] for placement in cluster.status()["placements"]
    }


def running(cluster: Cluster) -> set[str]:
    return {pod["metadata"]["name"] for pod in cluster.pods() if pod["spec"].get("nodeName")}


def scarce() -> Cluster:
    """Two GPUs of the cheaper pool, three of the dearer one."""
    cluster = Cluster(MI300X, H100)
    cluster.occupy("mi300x-0", 6)
    cluster.occupy("h100-0", 5, "nvidia.com/gpu")
    return cluster


async def two_pools(replicas: int = 4, **spec: Any) -> Cluster:
    """A cluster whose object serves from both pools."""
    cluster = scarce()
    cluster.apply("llama", spread(replicas, **spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED, cluster.message("Ready")
    return cluster


async def ask(cluster: Cluster, replicas: int, **spec: Any) -> None:
    cluster.apply("llama", spread(replicas, **spec))
    await cluster.settle()


def old(pod: Object) -> bool:
    """Whether the pod runs without OTHER_ARGUMENTS."""
    return "--disable-log-requests" not in pod["spec"]["containers"][0]["args"]


def lose(cluster: Cluster, prefix: str) -> None:
    """The nodes are gone, and their pods with them."""
    cluster.leave(prefix)
    for pod in cluster.api.objects(PODS):
        if (pod["spec"].get("nodeName") or "").startswith(prefix):
            metadata = pod["metadata"]
            cluster.api.remove(PODS, metadata["namespace"], metadata["name"])
    cluster.watch()
