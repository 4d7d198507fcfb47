"""A cluster with realistic durations: models load, nodes drain, lost pods end late.

On top of the cluster in memory (tests/support/in_memory/cluster.py), with the real operator in it:

- a pod answers once its model is loaded (`Server`);
- a node that is drained gives up its pods one after the other. Of an object with two replicas or
  more the last one that is ready stays, as a PodDisruptionBudget with `minAvailable: 1` asks for;
- a node without a heartbeat keeps its pods for five minutes. Then they are marked as ending, which
  they do once the node is back or gone, and their Deployments start others;
- requests come by the hour for objects that follow their load (`Traffic`), and are measured;
- each group of nodes is declared as a pool of its name, with a price that may change.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from math import ceil
from typing import Any, Final

from e2e.nodes.descriptions import render_nodes
from tests.simulator.models import Shelf, capacity_of
from tests.simulator.server import Server
from tests.simulator.traffic import Traffic
from tests.support.in_memory.cluster import NAMESPACE, WORLD, Cluster
from tests.support.in_memory.controllers import gpus_of, serves
from tests.support.load.replica_capacity import ReplicaCapacity
from tests.support.load.synthetic_day import SyntheticDay
from tonnage.api.names import LABEL_OWNER, LABEL_PLACEMENT
from tonnage.demand.signals import MeasuredLoad
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Object
from tonnage.reconcile.observation.findings import format_time
from tonnage.telemetry.load import LoadQuery

EVICTION_SECONDS: Final = 300.0
"""How long Kubernetes by default tolerates a silent node before it ends its pods."""
POOL_LABEL: Final = "pool"
SCRAPE_SECONDS: Final = 120
_NEVER: Final = 1e9


def wanted_of(body: Object) -> int:
    """The replicas that an InferenceDeployment is to have: as its user says, or by its load."""
    scaling = body.get("status", {}).get("scaling", {})
    return int(body["spec"].get("replicas", scaling.get("wantedReplicas", 1)))


class Site(Cluster):
    """A Cluster with load times, drains, lost nodes and prices; nodes are meant by their names."""

    world = replace(WORLD, scaling_interval_seconds=SCRAPE_SECONDS)

    def __init__(self, pools: Mapping[str, Mapping[str, Any]]) -> None:
        self.draining: set[str] = set()
        self.silent_since: dict[str, float] = {}
        self.traffic: dict[str, Traffic] = {}
        self._still: object = None
        super().__init__()
        self.measure_load = self._measure_load
        self._began = self.clock.seconds
        groups = [
            {"name": name, "labels": {POOL_LABEL: name}, **group} for name, group in pools.items()
        ]
        self._as_new = {body["metadata"]["name"]: body for body in render_nodes({"groups": groups})}
        for node in self._as_new:
            self.come_back(node)

    def start_operator(self) -> None:
        self.hub = Shelf()
        super().start_operator()

    @property
    def seconds(self) -> float:
        """Time passed since the beginning."""
        return self.clock.seconds - self._began

    def next_moment(self) -> float:
        """When, in whole seconds since the beginning, something happens by itself."""
        evictions = (since + EVICTION_SECONDS for since in self.silent_since.values())
        moments = (*self._due.values(), *evictions, *self._ready_moments())
        to_come = (moment for moment in moments if moment > self.clock.seconds)
        return ceil(min(to_come, default=_NEVER) - self._began)

    # What happens to objects

    def create(self, name: str, spec: Object, load_seconds: float) -> None:
        """A user declares an object, whose model takes so long to load."""
        self.behave(name, Server(self.clock, load_seconds))
        self.apply(name, spec)

    def behave(self, name: str, server: Server) -> None:
        """The pods of the object do this from now on."""
        self.behaviours[name] = server
        self._still = None

    def attract(self, name: str, day: SyntheticDay) -> None:
        """Requests come for the object from now on."""
        self.traffic[name] = Traffic(day, SCRAPE_SECONDS, seed=len(self.traffic))

    def pass_time(self, seconds: float) -> None:
        """Nothing happens for so long but requests."""
        for name, traffic in self.traffic.items():
            traffic.serve(int(self.seconds), int(seconds), self._capacities(name))
        self.clock.advance(seconds)

    def scale(self, name: str, replicas: int) -> None:
        """What a user or an autoscaler writes through the scale subresource."""
        spec = self.inference_deployment(name)["spec"]
        self.apply(name, {**spec, "replicas": replicas})

    # What happens to nodes and pools

    def declare(self, pool: str, dollars: str) -> None:
        """A platform team declares a pool, or changes what its GPUs cost an hour."""
        spec = {"nodeSelector": {POOL_LABEL: pool}, "costPerGPUHour": dollars}
        self.api.put(ACCELERATOR_POOLS, {"metadata": {"name": pool}, "spec": spec})
        self.look_at_all()

    def come_back(self, node: str) -> None:
        """A node that was drained, silent or gone is as new."""
        self.draining.discard(node)
        self.silent_since.pop(node, None)
        for pod in self.api.objects(PODS):
            if pod["spec"].get("nodeName") == node and "deletionTimestamp" in pod["metadata"]:
                self.api.remove(PODS, NAMESPACE, pod["metadata"]["name"])
        self.api.put(NODES, self._as_new[node])
        self.watch()

    def drain(self, node: str) -> None:
        """What `kubectl drain` does, until the node is empty."""
        self.cordon(node)
        self.draining.add(node)

    def fall_silent(self, node: str) -> None:
        """The node has lost its power or its network."""
        self.silence(node)
        self.silent_since.setdefault(node, self.clock.seconds)

    def lose(self, node: str) -> None:
        """The node is gone for good."""
        self.draining.discard(node)
        self.silent_since.pop(node, None)
        self.leave(node)

    def step(self) -> None:
        """One step of all, unless the last one changed nothing and all is as it was then."""
        before = (self.clock.seconds, self._everything())
        if before == self._still:
            return
        self._evict_from_draining()
        self._end_on_silent()
        super().step()
        self._still = before

    # Inside

    async def _measure_load(self, question: LoadQuery) -> MeasuredLoad | None:
        (owner,) = {
            self.deployment(name)["metadata"]["labels"][LABEL_OWNER]
            for name in question.deployments
        } or {""}
        return self.traffic[owner].measured() if owner in self.traffic else None

    def _capacities(self, name: str) -> dict[str, ReplicaCapacity]:
        """What each pod of the object that is ready can do."""
        model = self.inference_deployment(name)["spec"]["model"]["source"]["huggingFace"]["repo"]
        return {
            pod["metadata"]["name"]: capacity_of(
                model, pod["metadata"]["labels"][LABEL_PLACEMENT], sum(gpus_of(pod).values())
            )
            for pod in self.pods(name)
            if serves(pod)
        }

    def _nodes(self, prefix: str) -> list[Object]:
        return [node for node in super()._nodes(prefix) if node["metadata"]["name"] == prefix]

    def _ready_moments(self) -> Iterator[float]:
        """When each pod that loads its model will have it."""
        for pod in self.api.objects(PODS):
            server = self.behaviours.get(pod["metadata"]["labels"][LABEL_OWNER])
            started = pod["status"].get("startTime")
            if isinstance(server, Server) and started is not None:
                yield self._second_of(server.ready_at(started))

    def _second_of(self, moment: datetime) -> float:
        return self.clock.seconds + (moment - self.clock.now()).total_seconds()

    def _evict_from_draining(self) -> None:
        for pod in self.api.objects(PODS) if self.draining else ():
            if pod["spec"].get("nodeName") in self.draining and self._may_evict(pod):
                self.api.remove(PODS, NAMESPACE, pod["metadata"]["name"])

    def _may_evict(self, pod: Object) -> bool:
        owner = pod["metadata"]["labels"][LABEL_OWNER]
        known = {name for _, name, _, _ in self.api.versions(INFERENCE_DEPLOYMENTS)}
        if owner not in known or wanted_of(self.inference_deployment(owner)) < 2:
            return True
        names = {one["metadata"]["name"] for one in self.pods(owner) if serves(one)}
        return bool(names - {pod["metadata"]["name"]})

    def _end_on_silent(self) -> None:
        late = self.clock.seconds - EVICTION_SECONDS
        lost = {node for node, since in self.silent_since.items() if since <= late}
        for pod in self.api.objects(PODS) if lost else ():
            metadata = pod["metadata"]
            if pod["spec"].get("nodeName") in lost and "deletionTimestamp" not in metadata:
                # Its Deployment does not count a pod that ends, so it loses its owner here.
                kept = {key: metadata[key] for key in ("name", "namespace", "labels")}
                kept["deletionTimestamp"] = format_time(self.clock.now())
                self.api.put(PODS, {**pod, "metadata": kept})
