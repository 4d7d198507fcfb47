"""What an event costs a fleet of ten thousand nodes, and what a plan does.

    python -m benchmarks.in_memory.fleet [--nodes N] [--profile]

The fleet is of 200 pools: declared ones of 20 accelerators, and discovered ones. A second fleet has
all nodes in one pool. An event is taken in as the API server tells it: read, compared with what is
known, and sorted in. A plan is made for an object that is new and for one that runs, each after a
node and a pod have changed, as the operator makes it: all that it knows of models and pools it
knows from before. Times are those of the processor, so that others on the machine count little.
Exits with 1 where two plans of the same fleet differ.
"""

import argparse
import cProfile
import gc
import pstats
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

from e2e.nodes.descriptions import render_nodes
from e2e.nodes.labels import known_accelerators
from tests.support.engines.shapes import load_shape
from tests.support.fleets.gpu_nodes import gpu_pod_body
from tests.support.in_memory.cluster import spec_of
from tonnage.api.parse import parse_spec
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.model import Checkpoint
from tonnage.controller.queueing.priority import Priority
from tonnage.engines.inputs import RenderSettings
from tonnage.fit.model import Footprint
from tonnage.fleet.devices.resources import gpu_counts
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import Reservation
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import ACCELERATOR_POOLS, DEPLOYMENTS, NODES, PODS, SERVICES
from tonnage.kube.protocol import Kind, Object
from tonnage.manager.triggers import Triggers
from tonnage.reconcile.actions import Apply
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.child_pods import ChildPod
from tonnage.reconcile.observation.children import read_child, read_deployment
from tonnage.reconcile.observation.observation import Observation
from tonnage.reconcile.plan import Plan, make_plan
from tonnage.reconcile.scheduling.context import Dependencies

NOW = datetime(2026, 1, 1, tzinfo=UTC)
POOLS, KINDS, DISCOVERED = 200, 20, 20
EVENTS, PLANS = 2000, 200
MODEL = "llama-3.3-70b"
OVER_NODES = "deepseek-v3"
"""A model that takes several nodes of all but the largest GPUs."""


def raw_nodes(count: int, pools: int) -> list[Object]:
    """So many nodes in so many pools, as the API server has them; 2 % of them are cordoned."""
    random = Random(1)
    kinds = known_accelerators()[:KINDS]
    nodes = []
    for pool in range(pools):
        labels = {
            "topology.kubernetes.io/region": "region-1",
            "topology.kubernetes.io/zone": f"zone-{pool % 3}",
            "node.kubernetes.io/instance-type": f"type-{pool % len(kinds)}",
            "nvidia.com/gfd.timestamp": "1760000000",
            **{f"example.com/label-{number}": f"value-{number}" for number in range(10)},
        }
        if pool >= DISCOVERED or pools == 1:
            labels["pool"] = f"pool-{pool:03}"
        group = {
            "name": f"pool-{pool:03}",
            "accelerator": kinds[pool % len(kinds)] if pools > 1 else "h100-sxm-80gb",
            "count": count // pools,
            "gpusPerNode": 8,
            "labels": labels,
        }
        nodes += render_nodes({"groups": [group]})
    for body in nodes:
        body["metadata"]["uid"] = body["metadata"]["name"]
        body["metadata"]["labels"]["nvidia.com/gfd.timestamp"] += body["metadata"]["name"][-4:]
        body["spec"]["unschedulable"] = random.random() < 0.02
        for amounts in (body["status"]["capacity"], body["status"]["allocatable"]):
            amounts["rdma/ib"] = "1k"
    return nodes


def raw_pools(pools: int) -> list[Object]:
    """The declared ones, each with a price of its own."""
    names = [f"pool-{number:03}" for number in range(0 if pools == 1 else DISCOVERED, pools)]
    return [
        {
            "metadata": {"name": name, "uid": name},
            "spec": {"nodeSelector": {"pool": name}, "costPerGPUHour": f"{2 + place / 100:.2f}"},
        }
        for place, name in enumerate(names)
    ]


def raw_pods(nodes: Sequence[Object]) -> list[Object]:
    """Pods of others on every second node; one in three of these nodes is full."""
    random = Random(2)
    pods = []
    for number, body in enumerate(nodes[::2]):
        ((resource, gpus),) = gpu_counts(body["status"]["capacity"])[0].items()
        vendor, held = resource.partition(".")[0], random.choice([gpus, gpus // 2, 1])
        name = body["metadata"]["name"]
        pods.append(gpu_pod_body(f"other-{number}", node=name, gpus={vendor: str(held)}))
    return pods


class NoQueue:
    """Wakes no object."""

    def add(self, key: Key, urgency: Priority = Priority.EVENT) -> None:
        """Nothing."""

    def add_after(self, key: Key, seconds: float) -> None:
        """Nothing."""


class Bench:
    """A fleet as the operator has it, and an object to be planned."""

    def __init__(self, nodes: int, pools: int) -> None:
        self.random = Random(3)
        self.gone: Object = {}
        self.world = Dependencies(load_catalog(), RenderSettings())
        self.state = FleetState(Fleet(self.world.catalog))
        self.nodes = raw_nodes(nodes, pools)
        self.pods = raw_pods(self.nodes)
        self.stores = Stores(Triggers(NoQueue(), self.state).on_change)
        self.version = 0
        for kind, bodies in (
            (NODES, self.nodes),
            (ACCELERATOR_POOLS, raw_pools(pools)),
            (PODS, self.pods),
        ):
            for body in bodies:
                self.tell(kind, body)
        names = [pool.name for pool in self.state.view().pools()]
        for number in range(500):  # objects of others whose replicas are not all scheduled yet
            key = Key("others", f"object-{number}")
            pool = self.random.choice(names)
            held = Reservation((key.namespace, key.name), "x", pool, Footprint(1 << number % 4), 1)
            self.state.reserve(key, [held])
        self.state.view().pools()

    def tell(self, kind: Kind, body: Object, event_type: str = "MODIFIED") -> None:
        """A watch brings the object in a new version."""
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.stores.store_for(kind).observe(event_type, body)

    def cordon(self) -> None:
        """A node is cordoned, or is not any more."""
        body = self.random.choice(self.nodes)
        body["spec"]["unschedulable"] ^= True
        self.tell(NODES, body)

    def leave(self) -> None:
        """A node is gone."""
        self.gone = self.random.choice(self.nodes)
        self.tell(NODES, self.gone, "DELETED")

    def join(self) -> None:
        """A node is there."""
        self.gone["metadata"]["uid"] += "+"  # a uid is never used again
        self.tell(NODES, self.gone)

    def end_or_start(self) -> None:
        """A pod ends, or comes back."""
        body = self.random.choice(self.pods)
        ended = body["status"]["phase"] == "Succeeded"
        body["status"]["phase"] = "Running" if ended else "Succeeded"
        self.tell(PODS, body)

    def beat(self) -> None:
        """A node is as it was, which its kubelet says every five minutes."""
        self.tell(NODES, self.random.choice(self.nodes))

    def plan(self, observation: Observation) -> Plan:
        return make_plan(observation, self.state.view(), self.world, NOW)


def new_object(model: str = MODEL) -> Observation:
    """An object that nothing exists of yet."""
    spec = parse_spec(spec_of(MODEL, replicas=2, workload={"concurrency": 32}))
    checkpoint = Checkpoint(load_shape(model))
    return Observation(
        key=Key("chat", "llama"),
        uid="u0",
        resource_version="1",
        generation=1,
        created=NOW,
        spec=spec,
        model=checkpoint,
        previous_status={},
        has_leader_worker_set=True,
    )


def running(bench: Bench, observation: Observation) -> Observation:
    """The object once its replicas run where a plan has put them."""
    plan = bench.plan(observation)
    bench.state.reserve(observation.key, plan.reservations)
    (reservation,) = plan.reservations
    made = {
        action.kind: {
            **action.body,
            "metadata": {**action.body["metadata"], "uid": "u1", "resourceVersion": "1"},
        }
        for action in plan.actions
        if isinstance(action, Apply)
    }
    service, deployment = made[SERVICES], made[DEPLOYMENTS]
    metadata = {**deployment["metadata"], "generation": 1, "creationTimestamp": NOW.isoformat()}
    pool = next(p for p in bench.state.view().pools() if p.name == reservation.pool)
    gpus, labels = (
        reservation.footprint.gpus_per_node,
        deployment["spec"]["template"]["metadata"]["labels"],
    )
    hosts = [node.name for node in pool.nodes if node.allocatable >= gpus][: reservation.replicas]
    for number, host in enumerate(hosts):
        held = {pool.resource.partition(".")[0]: str(gpus)}
        body = gpu_pod_body(f"llama-{number}", node=host, labels=labels, gpus=held)
        bench.tell(PODS, body)
    status = {
        "observedGeneration": 1,
        "replicas": 2,
        "updatedReplicas": 2,
        "readyReplicas": 2,
    }
    return replace(
        observation,
        previous_status=plan.status.to_dict(),
        deployments=(read_deployment({**deployment, "metadata": metadata, "status": status}),),
        service=read_child(service),
        pods=tuple(
            ChildPod(f"llama-{number}", reservation.placement, NOW, host, True, False, 0, gpus)
            for number, host in enumerate(hosts)
        ),
    )


def clock(what: Callable[[], object], times: int, before: Callable[[], None] | None = None) -> str:
    """Median and 99th percentile of the CPU time in microseconds; `before` is not counted."""
    taken = []
    for _ in range(times):
        if before is not None:
            before()
        started = time.thread_time_ns()
        what()
        taken.append((time.thread_time_ns() - started) / 1000)
    taken.sort()
    return f"median {statistics.median(taken):8.1f}   p99 {taken[int(0.99 * len(taken))]:8.1f}"


def measure(bench: Bench, *, profile: bool) -> bool:
    """Print the figures of a fleet; whether plans of the same fleet are the same."""
    for what, before in (
        (bench.beat, None),
        (bench.cordon, None),
        (bench.end_or_start, None),
        (bench.join, bench.leave),
        (bench.leave, bench.join),
    ):
        description = (what.__doc__ or "").rstrip(".")
        print(f"  event, us: {clock(what, EVENTS, before)}   {description}")
    bench.join()

    def change() -> None:
        bench.cordon()
        bench.end_or_start()

    new = new_object()
    bench.plan(new)
    print(f"  pools, us: {clock(bench.state.view().pools, PLANS, change)}   after two events")
    print(f"  plan,  us: {clock(lambda: bench.plan(new), PLANS, change)}   of a new object")
    over = new_object(OVER_NODES)
    bench.plan(over)
    print(f"  plan,  us: {clock(lambda: bench.plan(over), PLANS, change)}   over several nodes")
    runs = running(bench, new)
    bench.plan(runs)
    print(f"  plan,  us: {clock(lambda: bench.plan(runs), PLANS, change)}   of one that runs")
    for observation in (new, runs) if profile else ():
        show_profile(bench, observation, change)
    return all(bench.plan(one) == bench.plan(one) for one in (new, runs))


def show_profile(bench: Bench, observation: Observation, change: Callable[[], None]) -> None:
    profiler = cProfile.Profile()
    for _ in range(PLANS):
        change()
        profiler.enable()
        bench.plan(observation)
        profiler.disable()
    pstats.Stats(profiler).sort_stats("tottime").print_stats(10)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Events and plans on a large fleet, timed.")
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--profile", action="store_true", help="where the time of a plan goes")
    options = parser.parse_args(arguments)
    same = True
    for pools in (POOLS, 1):
        started = time.perf_counter()
        bench = Bench(options.nodes, pools)
        pool_count = len(bench.state.view().pools())
        seconds = time.perf_counter() - started
        print(f"{options.nodes} nodes in {pool_count} pools, built in {seconds:.1f} s")
        gc.collect()
        same &= measure(bench, profile=options.profile)
    return int(not same)


if __name__ == "__main__":
    sys.exit(main())
