"""What pods hold of GPUs that drivers publish: by the claims on their devices, not by requests.

A pod has what the claims reserved for it hold, from their allocation on, which is before the pod is
bound. A claim that no known pod uses is a holder of its own. Devices that a driver withdraws stay
with their pods, which need no others. Nodes of a device plugin, and pods on them, are as they were
read.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from tonnage.fleet.devices.resources import shared_counts, vendor_of
from tonnage.fleet.dra.allocations import Allocations
from tonnage.fleet.model import GpuPod, Node
from tonnage.fleet.resource_slices import AllocatedClaim
from tonnage.fleet.usage.gpu_pods import GpuPods

_MAX_STALE: Final = 256
"""Nodes: some twenty milliseconds."""


class DeviceUsage:
    """Nodes and pods as they were read, and the same with the devices of their drivers.

    Each change marks nodes as stale, and `refresh` counts what is held on them, once for all events
    of a node. Both update `gpu_pods` and return the pods whose GPUs changed, as they were and as
    they are now.
    """

    def __init__(self, gpu_pods: GpuPods) -> None:
        self.allocations = Allocations()
        self._gpu_pods = gpu_pods
        self._nodes: dict[str, Node] = {}
        self._pods: dict[str, GpuPod] = {}
        self._bound: dict[str, set[str]] = {}
        self._holders: dict[str, set[str]] = {}
        self._stale_nodes: set[str] = set()

    def nodes(self) -> Iterator[Node]:
        """The nodes by name, as they were read."""
        return (node for _, node in sorted(self._nodes.items()))

    def pods(self) -> Iterator[GpuPod]:
        """The pods by uid, as they were read."""
        return (pod for _, pod in sorted(self._pods.items()))

    def node(self, name: str) -> Node | None:
        """The node with the GPUs that drivers publish; None where it does not exist."""
        node = self._nodes.get(name)
        return None if node is None else self.allocations.with_gpus(node)

    def put_node(self, node: Node) -> None:
        """Add or update a node."""
        self._nodes[node.name] = node

    def remove_node(self, name: str) -> list[GpuPod]:
        """Remove a node."""
        self._nodes.pop(name, None)
        return self.mark_stale([name])

    def put_pod(self, pod: GpuPod) -> list[GpuPod]:
        """Add or update a pod."""
        before = self._forget(pod.uid)
        self._pods[pod.uid] = pod
        if pod.node is not None:
            self._bound.setdefault(pod.node, set()).add(pod.uid)
        return [*self._set(pod.uid, pod), *self.mark_stale(self._nodes_of(before, pod))]

    def remove_pod(self, uid: str) -> list[GpuPod]:
        """Remove a pod that is gone or has finished."""
        before = self._forget(uid)
        return [*self._set(uid, None), *self.mark_stale(self._nodes_of(before))]

    def put_claim(self, claim: AllocatedClaim) -> list[GpuPod]:
        """Add or update a claim that holds devices."""
        nodes = self._nodes_of_users(self.allocations.claim(claim.uid), claim)
        return self.mark_stale(nodes | self.allocations.put_claim(claim))

    def remove_claim(self, uid: str) -> list[GpuPod]:
        """Remove a claim that is gone or holds no device any more."""
        nodes = self._nodes_of_users(self.allocations.claim(uid))
        return self.mark_stale(nodes | self.allocations.remove_claim(uid))

    def mark_stale(self, nodes: Iterable[str]) -> list[GpuPod]:
        """Note that what pods and claims hold on these nodes may have changed. Many stale nodes are
        counted at once, so that no call takes long."""
        self._stale_nodes.update(nodes)
        return self.refresh() if len(self._stale_nodes) >= _MAX_STALE else []

    def refresh(self) -> list[GpuPod]:
        """Count what pods and claims hold on stale nodes again."""
        stale, self._stale_nodes = self._stale_nodes, set()
        return [pod for node in sorted(stale) for pod in self._recount(node)]

    def _recount(self, node: str) -> list[GpuPod]:
        holders = self._holders.pop(node, set())
        bound = self._bound.get(node, set())
        if not holders and not self.allocations.is_published(node):
            pods = ((uid, self._without_listed(self._pods[uid], node)) for uid in sorted(bound))
            return [each for uid, pod in pods for each in self._set(uid, pod)]
        wanted = self._holding(node)
        for uid in bound - wanted.keys():
            wanted[uid] = self._without_listed(self._pods[uid], node)
        now = wanted.keys() - bound
        if now:
            self._holders[node] = now
        gone = holders - wanted.keys()
        changed = [pod for uid in sorted(gone) for pod in self._set(uid, self._pods.get(uid))]
        for uid, pod in sorted(wanted.items()):
            changed += self._set(uid, pod)
        return changed

    def _holding(self, node: str) -> dict[str, GpuPod]:
        """The pods that hold GPUs of the node by claims, and the claims of no known pod."""
        holding: dict[str, GpuPod] = {}
        for claim, gpus in self.allocations.held_on(node).items():
            pod = self._user_of(claim) or GpuPod(f"claim {claim.uid}", node, {})
            before = holding.get(pod.uid)
            total = dict(before.requests) if before else {}
            for resource, count in gpus.usable.items():
                total[resource] = total.get(resource, 0) + count
            requests = shared_counts(tuple(total.items()))
            tainted = gpus.tainted + (before.tainted if before else self._count_unlisted(pod.uid))
            holding[pod.uid] = replace(pod, node=node, requests=requests, tainted=tainted)
        return holding

    def _without_listed(self, pod: GpuPod, node: str) -> GpuPod:
        """A bound pod for which no claim holds a GPU that is listed: the others that claims hold
        for it. While no claim is known, its requests count as the published GPUs that the scheduler
        satisfies them with (KEP-5004)."""
        if node in self._nodes and (unlisted := self._count_unlisted(pod.uid)):
            return replace(pod, requests={}, tainted=unlisted)
        if not self.allocations.is_published(node):
            return pod
        published = self.node(node)
        requests = dict(pod.requests)
        for one in published.published if published else ():
            vendor = vendor_of(one.resource)
            whole = [name for name in requests if vendor_of(name) is vendor]
            if one.total and whole:
                requests[one.resource] = sum(requests.pop(name) for name in whole)
        return replace(pod, requests=requests)

    def _count_unlisted(self, uid: str) -> int:
        """The devices that claims hold for the pod, and that no ResourceSlice lists any more."""
        total = 0
        for claim in self.allocations.claims_of_pod(uid):
            unlisted = self.allocations.count_unlisted(claim)
            if unlisted and (user := self._user_of(claim)) is not None and user.uid == uid:
                total += unlisted
        return total

    def _user_of(self, claim: AllocatedClaim) -> GpuPod | None:
        """The pod that holds the claim's devices: the first of those that it is reserved for."""
        uid = min((uid for uid in claim.pods if uid in self._pods), default=None)
        return None if uid is None else self._pods[uid]

    def _set(self, uid: str, pod: GpuPod | None) -> list[GpuPod]:
        """Set what a pod holds, None: nothing; return it before and after where that differs."""
        before = self._gpu_pods.get(uid)
        if before == pod:
            return []
        if pod is None:
            self._gpu_pods.remove(uid)
        else:
            self._gpu_pods.put(pod)
        return [each for each in (before, pod) if each is not None]

    def _forget(self, uid: str) -> GpuPod | None:
        pod = self._pods.pop(uid, None)
        if pod is not None and pod.node is not None:
            self._bound[pod.node].discard(uid)
            if not self._bound[pod.node]:
                del self._bound[pod.node]
        return pod

    def _nodes_of(self, *pods: GpuPod | None) -> set[str]:
        """The nodes whose GPUs pods hold by claims, or may hold: those with published GPUs."""
        nodes: set[str] = set()
        for pod in pods:
            if pod is None:
                continue
            nodes |= self.allocations.nodes_of_pod(pod.uid)
            if pod.node is None:
                continue
            has_claims = pod.node in self._nodes and self.allocations.claims_of_pod(pod.uid)
            if has_claims or self.allocations.is_published(pod.node):
                nodes.add(pod.node)
        return nodes

    def _nodes_of_users(self, *claims: AllocatedClaim | None) -> set[str]:
        """The nodes of the pods that claims are reserved for. Nodes that are still to be read count
        then."""
        uids = (uid for claim in claims if claim is not None for uid in claim.pods)
        pods = (self._pods[uid] for uid in uids if uid in self._pods)
        return {pod.node for pod in pods if pod.node in self._nodes and pod.node is not None}
