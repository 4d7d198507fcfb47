"""An InferenceDeployment that serves, as a test of the loop begins with it."""

from typing import Any

from tests.support.in_memory.cluster import Cluster, spec_of

SETTLED = {
    "Accepted": ("True", "Valid"),
    "Placed": ("True", "PoolChosen"),
    "Progressing": ("False", "Settled"),
    "Available": ("True", "ReplicasReady"),
    "Ready": ("True", "ReplicasReady"),
}


async def served(*groups: dict[str, Any], **spec: Any) -> Cluster:
    """A cluster whose one InferenceDeployment `llama` is ready."""
    cluster = Cluster(*groups)
    cluster.apply("llama", spec_of(**spec))
    await cluster.settle()
    assert cluster.conditions() == SETTLED, cluster.message("Ready")
    return cluster
