"""An object whose long requests have an endpoint of their own, in a cluster in memory."""

from typing import Any

from tests.support.in_memory.cluster import L40S, MI300X, NAMESPACE, Cluster, spec_of
from tests.support.in_memory.serving import SETTLED
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Object

LONG = "llama-long"
ABOVE, ALL = 8192, 131072


def apart(long: Object | None = None, **spec: Any) -> Object:
    """A spec that tells requests apart; `long` is added to its longContext."""
    long_context = {"above": ABOVE, "concurrency": 4, **(long or {})}
    workload = {"maxModelLen": ALL, "concurrency": 12, "longContext": long_context}
    return _unset(spec_of(workload={**workload, **spec.pop("workload", {})}, **spec))


def together(**spec: Any) -> Object:
    """The same for which all replicas serve all requests."""
    return _unset(spec_of(workload={"maxModelLen": ALL, "concurrency": 12}, **spec))


def _unset(spec: Object) -> Object:
    """Without the one replica that a spec of the tests has by default."""
    return {key: value for key, value in spec.items() if key != "replicas" or value != 1}


def objects(cluster: Cluster) -> list[str]:
    """Names of all InferenceDeployments."""
    return [body["metadata"]["name"] for body in cluster.api.objects(INFERENCE_DEPLOYMENTS)]


def endpoint(cluster: Cluster) -> Object:
    """The InferenceDeployment of the long requests."""
    return cluster.api.object(INFERENCE_DEPLOYMENTS, NAMESPACE, LONG)


def ready_by_context(cluster: Cluster) -> dict[str, tuple[bool, str]]:
    """Whether each endpoint is ready, and why not, as the status has it."""
    listed = cluster.status().get("endpoints") or []
    return {
        endpoint_status["context"]: (endpoint_status["ready"], endpoint_status["reason"])
        for endpoint_status in listed
    }


def two_cards() -> Cluster:
    """A card that is cheap and small, and one that is large."""
    return Cluster(MI300X, L40S)


async def served_apart(**spec: Any) -> Cluster:
    """A cluster in which both endpoints are ready."""
    cluster = two_cards()
    cluster.apply("llama", apart(**spec))
    await cluster.settle()
    assert cluster.conditions() == cluster.conditions(LONG) == SETTLED, cluster.message("Ready")
    return cluster
