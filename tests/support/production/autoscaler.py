"""A node autoscaler on the API in memory, as small as can be and deterministic.

It does what Cluster Autoscaler and Karpenter have in common: for pods that the scheduler calls
Unschedulable it adds nodes of a group whose template would take them, and a node that it has added
counts as one that will take them until its kubelet and its device plugin are up. Source:
kubernetes/autoscaler cluster-autoscaler/FAQ.md and processors/customresources (nodes with unready
GPUs); karpenter.sh, Concepts, NodeClaims.
"""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from e2e.nodes.descriptions import render_nodes
from tests.support.api_server.fake_api import FakeApi
from tests.support.production.resources import Amounts, amounts, has_finished, requests_of
from tests.support.production.scheduler import suits, take
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import Object

_NOT_READY: Final = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
_MACHINE: Final = ("cpu", "memory", "ephemeral-storage", "hugepages-2Mi", "pods")


class Cloud(Protocol):
    """The cluster as an autoscaler knows it."""

    def pods(self) -> list[Object]:
        """The pods of all namespaces."""

    def nodes(self) -> list[Object]:
        """All nodes."""

    def put_node(self, node: Object, *, ready: bool) -> None:
        """Add the node, or replace it; its kubelet is ready or not."""


class InMemoryCloud:
    """The cluster in memory."""

    def __init__(self, api: FakeApi) -> None:
        self._api = api

    def pods(self) -> list[Object]:
        """The pods of all namespaces."""
        return self._api.objects(PODS)

    def nodes(self) -> list[Object]:
        """All nodes."""
        return self._api.objects(NODES)

    def put_node(self, node: Object, *, ready: bool) -> None:
        """Do what the kubelet and the node controller do."""
        node["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
        if not ready:
            node["spec"]["taints"] = [*node["spec"]["taints"], _NOT_READY]
        self._api.put(NODES, node)


@dataclass
class NodeGroup:
    """Up to `maximum` nodes as in a group of a file of e2e/fleets. `labels` are what the cloud
    gives a node; those of the vendor's labeller come with its device plugin."""

    description: dict[str, Any]
    maximum: int
    added: list[str] = field(default_factory=list)

    def template(self, number: int) -> Object:
        """A node of the group, complete."""
        name = f"{self.description['name']}-{number}"
        (node,) = render_nodes({"groups": [{**self.description, "count": 1}]})
        node["metadata"]["name"] = name
        node["metadata"]["labels"]["kubernetes.io/hostname"] = name
        return node


class Autoscaler:
    """Adds nodes to its groups; a test lets them come up, step by step."""

    def __init__(self, cloud: Cloud, *groups: NodeGroup) -> None:
        self._cloud, self.groups = cloud, groups

    def scale_up(self) -> list[str]:
        """Add nodes for the pods that no node takes, nor any that comes up; return their names."""
        coming = [
            (group, _allocatable(group.template(0)))
            for group in self.groups
            for name in group.added
            if not self._is_complete(group, name)
        ]
        added = []
        for pod in filter(_is_unschedulable, self._cloud.pods()):
            if any(_assume(pod, group, free) for group, free in coming):
                continue
            for group in self.groups:
                free = _allocatable(group.template(0))
                if len(group.added) < group.maximum and _assume(pod, group, free):
                    added.append(self._add(group))
                    coming.append((group, free))
                    break
        return added

    def register(self, name: str) -> None:
        """The kubelet of the node registers: it is not ready, and has no device plugin."""
        self._cloud.put_node(_without_devices(self._template(name)), ready=False)

    def make_ready(self, name: str) -> None:
        """The kubelet is ready; the device plugin and the labeller are not up yet."""
        self._cloud.put_node(_without_devices(self._template(name)), ready=True)

    def complete(self, name: str) -> None:
        """The device plugin and the labeller are up."""
        self._cloud.put_node(self._template(name), ready=True)

    def _add(self, group: NodeGroup) -> str:
        name = f"{group.description['name']}-{len(group.added)}"
        group.added.append(name)
        return name

    def _template(self, name: str) -> Object:
        group = next(one for one in self.groups if name in one.added)
        return group.template(group.added.index(name))

    def _is_complete(self, group: NodeGroup, name: str) -> bool:
        nodes = {node["metadata"]["name"]: node for node in self._cloud.nodes()}
        wanted = _allocatable(group.template(0))
        return name in nodes and _allocatable(nodes[name]) == wanted


def _is_unschedulable(pod: Object) -> bool:
    conditions: Sequence[Object] = pod.get("status", {}).get("conditions", [])
    scheduled = next((one for one in conditions if one["type"] == "PodScheduled"), {})
    waits = scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable"
    return waits and not has_finished(pod) and not pod["metadata"].get("deletionTimestamp")


def _assume(pod: Object, group: NodeGroup, free: Amounts) -> bool:
    """Let the pod take what it requests of a node to come; False where that does not suit it."""
    requests = requests_of(pod)
    if not suits(group.template(0), pod) or any(free[name] < requests[name] for name in requests):
        return False
    take(free, requests)
    return True


def _allocatable(node: Object) -> Amounts:
    return amounts(node["status"]["allocatable"])


def _without_devices(node: Object) -> Object:
    """The node before anything of the vendor runs on it: without extended resources, and without
    the labels of its labeller."""
    node = deepcopy(node)
    for listed in ("capacity", "allocatable"):
        resources = node["status"][listed]
        node["status"][listed] = {name: resources[name] for name in _MACHINE}
    labels = node["metadata"]["labels"]
    node["metadata"]["labels"] = {
        key: value for key, value in labels.items() if not _is_of_vendor(key)
    }
    return node


def _is_of_vendor(key: str) -> bool:
    prefix = key.partition("/")[0]
    return prefix.endswith(("amd.com", "nvidia.com"))
