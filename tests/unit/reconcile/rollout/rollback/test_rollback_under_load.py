"""After a rollback the measured load still sets the number of replicas, zero included."""

from tests.support.in_memory.cluster import H100, MI300X, Cluster, spec_of
from tests.support.in_memory.controllers import ready, without_image
from tests.support.in_memory.serving import SETTLED
from tests.support.load.demand import to_zero
from tests.support.load.replica_load import ReplicaLoad

HOUR = 3600
FIRST, SECOND = ({"accelerators": [name]} for name in ("mi300x", "h100-sxm-80gb"))


async def rolled_back() -> tuple[Cluster, ReplicaLoad]:
    """A replica that follows its load on the pool before the one that has failed."""
    cluster = Cluster(MI300X, H100)
    load = ReplicaLoad(cluster, work=0.4, queued=0)
    cluster.behaviours["llama"] = lambda pod: (
        without_image(pod) if "h100" in pod["metadata"]["name"] else ready(pod)
    )
    scaling = {"maxReplicas": 6, "targets": {"waitingRequests": 1}, "scaleToZero": to_zero()}
    spec = spec_of(scaling=scaling, workload={"concurrency": 4})
    del spec["replicas"]
    cluster.apply("llama", {**spec, "placement": FIRST})
    await cluster.settle()
    assert cluster.conditions() == {**SETTLED, "ScalingActive": ("True", "LoadMeasured")}
    cluster.apply("llama", {**spec, "placement": SECOND})
    await cluster.settle()
    await cluster.wait(HOUR)
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")
    return cluster, load


async def sample(cluster: Cluster, minutes: int) -> None:
    for _ in range(minutes):
        await cluster.wait(60)


async def test_an_idle_object_scales_to_zero_and_back() -> None:
    cluster, load = await rolled_back()
    load.work = 0
    await sample(cluster, 5)
    assert cluster.conditions()["ScalingActive"] == ("True", "LoadMeasured")
    await sample(cluster, 25)
    assert cluster.pods() == []
    assert cluster.conditions()["Ready"] == ("True", "ScaledToZero")
    load.queued = 3
    await sample(cluster, 1)
    assert cluster.deployments() == ["llama-mi300x"]
    assert cluster.status()["readyReplicas"] == 1
    assert cluster.conditions()["Ready"] == ("False", "RolledBack")


async def test_more_load_is_followed() -> None:
    cluster, load = await rolled_back()
    load.work = 2.6
    await sample(cluster, 2)
    assert cluster.status()["readyReplicas"] == cluster.status()["desiredReplicas"] == 3
