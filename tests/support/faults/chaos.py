"""A cluster in memory where things happen in any order: late news, slow ends, random binding."""

import random
from collections.abc import Mapping
from typing import Any

from tests.support.api_server.fake_api import Crash
from tests.support.faults.promise_book import PromiseBook
from tests.support.fleets.promises import Sight
from tests.support.in_memory.cluster import NAMESPACE, Cluster
from tests.support.in_memory.controllers import run_deployments, run_pods
from tests.support.production.scheduler import schedule_pods
from tonnage.kube.kinds import NODES, PODS
from tonnage.kube.protocol import ApiError, Object

FOREIGN = "other"
"""Namespace of everybody else's pods."""


class ChaosCluster(Cluster):
    """A Cluster whose operator may hear late, whose pods end slowly and are bound in any order.

    `known` is what the operator has heard, and `known_at` the moment; moments count the steps.
    """

    def __init__(self, chance: random.Random, *groups: Mapping[str, Any]) -> None:
        self.chance = chance
        self.lagging = False
        self.moment = 0
        self.book = PromiseBook()
        super().__init__(*groups)

    # The operator

    def start_operator(self) -> None:
        self.lagging = False  # a new process lists everything
        super().start_operator()

    def watch(self) -> None:
        sight = self.sight()
        self.book.note_losses(sight, self.moment)
        if not self.lagging:
            self.known, self.known_at = sight, self.moment
            super().watch()

    async def reconcile_unless_it_dies(self, name: str) -> None:
        """One reconcile; what fails is tried again later, what dies starts anew."""
        try:
            await self.reconcile(name)
        except Crash:
            self.start_operator()
        except ApiError:
            self.look_at_all()

    def sight(self) -> Sight:
        """Nodes and pods as they are stored."""
        return Sight(self.api.objects(NODES), self.api.objects(PODS))

    # Time

    def step(self) -> None:
        """One step of each controller; a pod that is stopped may hold its GPUs for a while."""
        self.moment += 1
        self.api.now = self.clock.now()
        self._end_some()
        with _Lingering(self):
            self.api.collect_garbage()
            run_deployments(self.api)
        schedule_pods(self.api, self.chance.shuffle)
        run_pods(self.api, self.behaviours)
        with _Lingering(self):
            run_deployments(self.api)
        self.watch()

    # Nodes and other people

    def set_ready(self, prefix: str, ready: bool) -> None:
        """The kubelets of these nodes report, or have fallen silent."""
        taint = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}
        for node in self._nodes(prefix):
            node["status"]["conditions"] = [{"type": "Ready", "status": str(ready)}]
            node["spec"]["taints"] = [] if ready else [taint]
            self.api.put(NODES, node)
        self.watch()

    def put_foreign_pod(self, name: str, resource: str, gpus: int) -> None:
        """Somebody else wants GPUs, wherever they are."""
        limits = {resource: str(gpus)}
        body: Object = {
            "metadata": {"name": name, "namespace": FOREIGN},
            "spec": {"containers": [{"name": "x", "resources": {"limits": limits}}]},
            "status": {"phase": "Pending"},
        }
        self.api.put(PODS, body)

    def evict(self, owner: str) -> None:
        """One pod of an object ends by itself; its Deployment starts another."""
        pods = self.pods(owner)
        if pods:
            name = self.chance.choice(pods)["metadata"]["name"]
            with _Lingering(self):
                self.api.remove(PODS, NAMESPACE, name)

    # Inside

    def _end_some(self) -> None:
        for pod in self.api.objects(PODS):
            metadata = pod["metadata"]
            if "deletionTimestamp" in metadata and self.chance.random() < 0.5:
                self.api.remove(PODS, metadata["namespace"], metadata["name"])


class _Lingering:
    """Bound pods that are removed meanwhile may stay for a while, ending.

    What stays has no ownerReferences: controllers do not count a pod that ends.
    """

    def __init__(self, cluster: ChaosCluster) -> None:
        self._cluster = cluster

    def __enter__(self) -> None:
        self._before = {pod["metadata"]["uid"]: pod for pod in self._bound()}

    def __exit__(self, *_: object) -> None:
        for pod in self._bound():
            self._before.pop(pod["metadata"]["uid"], None)
        for pod in self._before.values():
            if self._cluster.chance.random() < 0.5:
                self._linger(pod)

    def _bound(self) -> list[Object]:
        return [pod for pod in self._cluster.api.objects(PODS) if "nodeName" in pod["spec"]]

    def _linger(self, pod: Object) -> None:
        kept = {"name", "namespace", "labels"}
        metadata = {key: value for key, value in pod["metadata"].items() if key in kept}
        metadata["deletionTimestamp"] = self._cluster.clock.now().strftime("%Y-%m-%dT%H:%M:%SZ")
        self._cluster.api.put(PODS, {**pod, "metadata": metadata})
