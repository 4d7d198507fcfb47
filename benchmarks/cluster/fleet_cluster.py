"""A cluster with a large fleet: its nodes, the pods of other workloads, and the objects of the
operator with their pods.

Only etcd and the API server run besides the operator: scheduler, controller-manager and KWOK are
stopped, and this module does what they would do.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from benchmarks.cluster.api_client import ApiClient
from benchmarks.cluster.bench_cluster import bench_cluster
from benchmarks.cluster.etcd_store import EtcdStore
from benchmarks.cluster.fleet_objects import (
    OTHER_WORKLOADS,
    FreeCapacity,
    available_deployment,
    fleet_device_classes,
    fleet_nodes,
    fleet_slices,
    node_conditions,
)
from benchmarks.cluster.load_generator import run_parallel
from e2e.harness.admin import Admin
from e2e.harness.operator_process import OperatorProcess
from e2e.harness.rest import Json
from e2e.harness.stack import Stack
from e2e.models import inference
from tonnage.api.names import LABEL_OWNER

_STOPPED: Final = ("kube-controller-manager", "kube-scheduler", "kwok")
_OBJECTS_IN_A_NAMESPACE: Final = 100
_MODEL: Final = "llama-3.1-8b"  # fits on one GPU
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_HEARTBEAT: Final = "2026-11-22T08:00:00Z"


@dataclass(frozen=True, slots=True)
class FleetSize:
    """How many nodes, pods that hold GPUs, and InferenceDeployments (with one of the pods each)."""

    nodes: int
    pods: int
    objects: int

    def part(self, share: float) -> FleetSize:
        """A fleet that is so large a share of this one."""
        return FleetSize(
            round(self.nodes * share), round(self.pods * share), round(self.objects * share)
        )


@contextmanager
def fleet_control_plane() -> Iterator[tuple[Stack, Admin, OperatorProcess]]:
    """A control plane of which only etcd and the API server run, and an operator to be started."""
    with bench_cluster("fleet", [OTHER_WORKLOADS]) as (stack, admin, root):
        for name in _STOPPED:
            stack.processes[name].send(signal.SIGSTOP)
        try:
            with closing(OperatorProcess(stack, root / "operator")) as operator:
                yield stack, admin, operator
        finally:
            for name in _STOPPED:
                stack.processes[name].send(signal.SIGCONT)


@dataclass(slots=True)
class FleetCluster:
    """The cluster and its content so far; `pods` are those of InferenceDeployments, by node. With
    `dra`, ResourceSlices list the GPUs, and pods hold them by claims."""

    admin: Admin
    client: ApiClient
    etcd: EtcdStore
    dra: bool = False
    size: FleetSize = FleetSize(0, 0, 0)
    capacity: FreeCapacity = field(default_factory=FreeCapacity)
    objects: list[tuple[str, str]] = field(default_factory=list)
    pods: dict[str, list[Json]] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        """The objects as the operator's log names them."""
        return {f"{namespace}/{name}" for namespace, name in self.objects}

    async def grow(self, size: FleetSize) -> None:
        """Add the nodes, the pods of other workloads and the objects that a size has more."""
        before, self.size = self.size, size
        nodes = fleet_nodes(size.nodes, before.nodes, dra=self.dra)
        self.capacity.add_nodes(nodes)
        if self.dra:
            slices = list(fleet_slices(nodes))
            self.capacity.add_slices(slices)
            await self.etcd.put([*fleet_device_classes(slices), *slices])
        await self.etcd.put(nodes)
        others = (size.pods - size.objects) - (before.pods - before.objects)
        await self._put_pods(self.capacity.other_pods(others, nodes))
        await self._create_objects(size.objects)

    async def _create_objects(self, count: int) -> None:
        resource = self.admin.resource("inferencedeployments")
        added = [_object_name(number) for number in range(len(self.objects), count)]
        namespaces = {namespace for namespace, _ in added}
        for namespace in sorted(namespaces - {namespace for namespace, _ in self.objects}):
            body = {"metadata": {"name": namespace}}
            self.admin.rest.request("POST", "/api/v1/namespaces", body)
        await run_parallel(
            partial(
                self.client.create,
                resource.path(namespace),
                inference(name, _MODEL, max_model_len=8192),
            )
            for namespace, name in added
        )
        self.objects += added

    async def run_pods(self) -> set[str]:
        """Do what the Deployment controller, the scheduler and kubelets would do for the
        Deployments that have no pods yet; return the keys of their objects."""
        placed = {owner_key(pod) for pods in self.pods.values() for pod in pods}
        deployments = [
            deployment
            for deployment in self.admin.items("deployments", everywhere=True)
            if owner_key(deployment) not in placed
        ]
        pods = [self.capacity.pod_of(deployment) for deployment in deployments]
        for pod in pods:
            self.pods.setdefault(pod["spec"]["nodeName"], []).append(pod)
        await self._put_pods(pods)
        await self.etcd.put(map(available_deployment, deployments))
        return {owner_key(deployment) for deployment in deployments}

    async def _put_pods(self, pods: Iterable[Json]) -> None:
        """Write pods, and the claims by which they hold GPUs."""
        await self.etcd.put(pods)
        claims, self.capacity.claims = self.capacity.claims, []
        await self.etcd.put(claims)

    def busiest_node(self) -> str:
        """The node with the most pods of InferenceDeployments."""
        return max(self.pods, key=lambda name: len(self.pods[name]))

    def set_node_ready(self, node: str, *, ready: bool) -> None:
        """Mark a node and its pods as the node controller does: unreachable and not ready after
        the kubelet has stopped reporting, or well again."""
        taints = [] if ready else [{"key": _UNREACHABLE, "effect": "NoSchedule"}]
        conditions = node_conditions(ready=ready, heartbeat=_HEARTBEAT)
        status = {"status": {"conditions": conditions}}
        self.admin.patch("nodes", node, status, subresource="status")
        self.admin.patch("nodes", node, {"spec": {"taints": taints}})
        for pod in self.pods[node]:
            metadata = pod["metadata"]
            conditions = [
                {**condition, "status": str(ready)} if condition["type"] == "Ready" else condition
                for condition in pod["status"]["conditions"]
            ]
            self.admin.patch(
                "pods",
                metadata["name"],
                {"status": {"conditions": conditions}},
                metadata["namespace"],
                subresource="status",
            )


def _object_name(number: int) -> tuple[str, str]:
    return f"team-{number // _OBJECTS_IN_A_NAMESPACE:03}", f"model-{number:05}"


def owner_key(body: Json) -> str:
    """The key of the InferenceDeployment that a child or a pod belongs to, as the log names it."""
    metadata = body["metadata"]
    return f"{metadata['namespace']}/{metadata['labels'][LABEL_OWNER]}"
