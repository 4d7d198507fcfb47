"""The GPUs that pods hold on nodes, and the owners of these pods."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from tonnage.fleet.model import GpuPod
from tonnage.fleet.resources import NOTHING, Resources

Name = TypeVar("Name")
Owner = tuple[str, str]
"""Namespace and name of an InferenceDeployment."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What some pods hold of nodes, by node: GPUs of the node's resource, and what they request
    besides."""

    gpus: dict[str, int] = field(default_factory=dict)
    others: dict[str, Resources] = field(default_factory=dict)

    def add(self, node: str, pod: GpuPod, resource: str) -> None:
        """Add what a pod on the node holds."""
        self.gpus[node] = self.gpus.get(node, 0) + pod.requests.get(resource, 0)
        self.others[node] = self.others.get(node, NOTHING).plus(pod.others)


class GpuPods:
    """Pods indexed by node and by owner. A pod that is bound to no node holds no GPUs yet."""

    def __init__(self) -> None:
        self._pods: dict[str, GpuPod] = {}
        self._by_node: dict[str, dict[str, GpuPod]] = {}
        self._by_owner: dict[Owner, dict[str, GpuPod]] = {}

    def __iter__(self) -> Iterator[GpuPod]:
        return (pod for _, pod in sorted(self._pods.items()))

    def put(self, pod: GpuPod) -> None:
        """Add or update a pod."""
        self.remove(pod.uid)
        self._pods[pod.uid] = pod
        if pod.node is not None:
            self._by_node.setdefault(pod.node, {})[pod.uid] = pod
            if pod.owner is not None:
                self._by_owner.setdefault(pod.owner, {})[pod.uid] = pod

    def remove(self, uid: str) -> GpuPod | None:
        """Remove and return a pod, None where there is none with this uid."""
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.node is not None:
            _drop(self._by_node, pod.node, uid)
            if pod.owner is not None:
                _drop(self._by_owner, pod.owner, uid)
        return pod

    def get(self, uid: str) -> GpuPod | None:
        """The pod with this uid, None where there is none."""
        return self._pods.get(uid)

    def on(self, node: str) -> Collection[GpuPod]:
        """The pods bound to a node."""
        return self._by_node.get(node, {}).values()

    def of(self, owner: Owner) -> Iterable[GpuPod]:
        """The bound pods of an InferenceDeployment."""
        return self._by_owner.get(owner, {}).values()

    def used(self, node: str, resource: str) -> int:
        """GPUs of a resource that bound pods hold on a node."""
        return sum(pod.requests.get(resource, 0) for pod in self.on(node))

    def other_requests(self, node: str) -> Resources:
        """What bound pods with GPUs request of a node besides GPUs."""
        requests = NOTHING
        for pod in self.on(node):
            requests = requests.plus(pod.others)
        return requests


def _drop(index: dict[Name, dict[str, GpuPod]], name: Name, uid: str) -> None:
    del index[name][uid]
    if not index[name]:
        del index[name]
