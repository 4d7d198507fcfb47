"""A person who approves plans, in a cluster in memory."""

from typing import Any, Final

from tests.support.in_memory.cluster import Cluster, spec_of
from tests.support.in_memory.serving import SETTLED

MANUAL: Final = {"approval": "Manual"}
OTHER_IMAGE: Final = {"vllm": {"image": "registry.local/vllm:other"}}


def proposed(cluster: Cluster, name: str = "llama") -> Any:
    """The plan that waits, None where none does."""
    return cluster.status(name).get("proposedPlan")


def approve(cluster: Cluster, name: str = "llama") -> str:
    """Say yes to what waits, as `kubectl tonnage approve` does; the hash."""
    waiting = proposed(cluster, name)["hash"]
    spec = cluster.inference_deployment(name)["spec"]
    cluster.apply(name, {**spec, "approvedPlan": waiting})
    return str(waiting)


def change(cluster: Cluster, **fields: Any) -> None:
    """A user changes these fields of the spec."""
    cluster.apply("llama", {**cluster.inference_deployment()["spec"], **fields})


async def approved(*groups: dict[str, Any], **spec: Any) -> Cluster:
    """An object whose first plan a person has approved, and that serves."""
    cluster = Cluster(*groups)
    cluster.apply("llama", spec_of(**MANUAL, **spec))
    await cluster.settle()
    approve(cluster)
    await cluster.settle()
    assert cluster.conditions() == SETTLED, cluster.message("Ready")
    assert proposed(cluster) is None
    return cluster
