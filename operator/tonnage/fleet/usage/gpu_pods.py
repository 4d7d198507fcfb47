"""What pods hold on nodes, and the owners of pods with GPUs."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from tonnage.fleet.model import BoundPod, GpuPod
from tonnage.fleet.resources import NOTHING, Resources

Name = TypeVar("Name")
Owner = tuple[str, str]
"""Namespace and name of an InferenceDeployment."""


class GpuPods:
    """Pods indexed by node and by owner. A pod that is bound to no node holds nothing yet.

    Of pods without GPUs only the sum on each node is kept, updated pod by pod.
    """

    def __init__(self) -> None:
        self._pods: dict[str, GpuPod] = {}
        self._without_gpus: dict[str, Resources] = {}
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

    def on(self, node: str) -> Iterable[GpuPod]:
        """The pods bound to a node."""
        return self._by_node.get(node, {}).values()

    def of(self, owner: Owner) -> Iterable[GpuPod]:
        """The bound pods of an InferenceDeployment."""
        return self._by_owner.get(owner, {}).values()

    def add_other(self, pod: BoundPod) -> None:
        """Count a pod without GPUs on its node."""
        self._without_gpus[pod.node] = self._without_gpus.get(pod.node, NOTHING).plus(pod.requests)

    def remove_other(self, pod: BoundPod) -> None:
        """Count a pod without GPUs, which was added, no more."""
        left = self._without_gpus.get(pod.node, NOTHING).minus(pod.requests)
        if left == NOTHING:
            self._without_gpus.pop(pod.node, None)
        else:
            self._without_gpus[pod.node] = left

    def others(self) -> Iterator[BoundPod]:
        """The sum of the pods without GPUs on each node, by the node's name."""
        return (BoundPod(node, used) for node, used in sorted(self._without_gpus.items()))

    def used(self, node: str, resource: str) -> Resources:
        """What bound pods hold on a node: GPUs of a resource, CPU, memory and storage."""
        used = self._without_gpus.get(node, NOTHING)
        for pod in self.on(node):
            used = used.plus(held_by(pod, resource))
        return used


def held_by(pod: GpuPod, resource: str) -> Resources:
    """What a pod holds on a node whose GPUs are of this resource."""
    return pod.others._replace(gpus=pod.requests.get(resource, 0))


def _drop(index: dict[Name, dict[str, GpuPod]], name: Name, uid: str) -> None:
    del index[name][uid]
    if not index[name]:
        del index[name]
