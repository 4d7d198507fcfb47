"""Find pods whose node was deleted: they may say Ready until the pod garbage collector comes."""

from collections.abc import Callable, Container, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from tonnage.kube.kinds import NODES
from tonnage.kube.protocol import ApiError, ClusterReader, ObjectParts, Selection
from tonnage.reconcile.observation.child_pods import ChildPod, find_ready_replicas
from tonnage.reconcile.observation.children import ChildDeployment

_NODES_PER_RECONCILE: Final = 8

HasNode = Callable[[str], bool]
"""Whether the operator watches a node of this name."""


def has_every_node(name: str) -> bool:
    """Where no nodes are watched, every node counts as existing."""
    return True


async def find_lost_nodes(
    reader: ClusterReader, has_node: HasNode, pods: Iterable[ChildPod]
) -> frozenset[str]:
    """The nodes of these pods that do not exist.

    A node that is not watched may be one of another shard, so each is read live; one that cannot be
    read counts as existing.
    """
    names = {pod.node for pod in pods if pod.node and not pod.deleting and not has_node(pod.node)}
    lost = set()
    for name in sorted(names)[:_NODES_PER_RECONCILE]:
        selection = Selection(NODES, fields=f"metadata.name={name}")
        with suppress(ApiError):
            if not await reader.list_first(selection, ObjectParts.METADATA, 1):
                lost.add(name)
    return frozenset(lost)


def mark_lost(pods: Iterable[ChildPod], lost: Container[str]) -> tuple[ChildPod, ...]:
    """The pods, of which those on lost nodes are not ready."""
    return tuple(replace(pod, ready=False, lost=True) if pod.node in lost else pod for pod in pods)


def without_lost(
    deployments: Iterable[ChildDeployment], pods: Iterable[ChildPod], lost: Container[str]
) -> tuple[ChildDeployment, ...]:
    """The Deployments without the replicas on lost nodes, which their controller counts as ready as
    long as these `pods` say so."""
    known = list(pods)
    stopped = {pod.replica for pod in known if pod.node in lost}

    def count(deployment: ChildDeployment) -> int:
        nodes = deployment.parallelism.nodes
        ready = find_ready_replicas(known, deployment.placement, nodes)
        return max(0, deployment.ready - len(ready & stopped))

    return tuple(replace(deployment, ready=count(deployment)) for deployment in deployments)
