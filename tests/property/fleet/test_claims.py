"""Free GPUs of DRA drivers after any history: exact, independent of the order of events, and never
given twice."""

from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from tests.support.fleets.dra_objects import claim, dra_node, gpu_slice
from tests.support.fleets.gpu_nodes import H100, gpu_pod_body, nvidia_node
from tonnage.catalog.load import load_catalog
from tonnage.fleet.dra.read import read_claim, read_slice
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import FleetSnapshot
from tonnage.fleet.nodes.node import read_node
from tonnage.fleet.nodes.pod import read_gpu_pod

CATALOG = load_catalog()
HISTORIES = 1000
STEPS = 30
GPUS = 8
DRA = [f"dra-{number}" for number in range(3)]
PLUGIN = [f"plugin-{number}" for number in range(2)]


@dataclass
class Truth:
    """What the cluster really holds, device by device, next to the fleet that hears of it late."""

    random: Random
    fleet: Fleet = field(default_factory=lambda: Fleet(CATALOG))
    held: dict[str, set[str]] = field(default_factory=lambda: {node: set() for node in DRA})
    requested: dict[str, int] = field(default_factory=lambda: dict.fromkeys(PLUGIN, 0))
    claims: dict[str, tuple[str, set[str]]] = field(default_factory=dict)
    plugin_pods: dict[str, tuple[str, int]] = field(default_factory=dict)
    pods: dict[str, Any] = field(default_factory=dict)
    slices: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DRA, 1))
    number: int = 0

    def start(self) -> None:
        events = [
            *(lambda name=name: self.fleet.put_node(read_node(dra_node(name))) for name in DRA),
            *(lambda name=name: self.publish(name) for name in DRA),
            *(
                lambda name=name: self.fleet.put_node(read_node(nvidia_node(name, H100)))
                for name in PLUGIN
            ),
        ]
        self.random.shuffle(events)
        for event in events:
            event()

    def publish(self, node: str) -> None:
        body = read_slice(gpu_slice(node, generation=self.slices[node]))
        assert body is not None
        self.fleet.put_slice(body)

    def free(self) -> dict[str, int]:
        return {node.name: node.free for pool in self.fleet.pools() for node in pool.nodes}

    def place_claim(self) -> None:
        """A pod is placed where the fleet says that it fits, with one claim or two."""
        count = self.random.choice([1, 2, 4, 8])
        nodes = [node for node in DRA if self.free()[node] >= count]
        if not nodes:
            return
        node = self.random.choice(nodes)
        left = sorted({f"gpu-{index}" for index in range(GPUS)} - self.held[node])
        assert len(left) >= count, f"{node} is given twice"
        devices = set(self.random.sample(left, count))
        self.number += 1
        name, uid = f"c{self.number}", f"pod-{self.number}"
        self.held[node] |= devices
        self.claims[name] = node, devices
        pod = gpu_pod_body(uid, node=node)
        pod["metadata"]["uid"] = uid
        pod["spec"]["resourceClaims"] = [{"name": "gpus"}]
        body = claim(name, node, sorted(devices), pods=[uid])
        events = [lambda: self.put_claim(body), lambda: self.put_pod(pod)]
        self.random.shuffle(events)
        if self.random.random() < 0.2:
            events = [lambda: self.put_claim(body)]  # of a pod that the operator does not know
        # The claim's event always arrives before the next decision: the API server allocated it.
        for event in events:
            event()

    def put_claim(self, body: Any) -> None:
        read = read_claim(body)
        assert read is not None
        self.fleet.put_claim(read)

    def put_pod(self, body: Any) -> None:
        pod = read_gpu_pod(body)
        assert pod is not None
        self.pods[pod.uid] = pod
        self.fleet.put_pod(pod)

    def place_on_plugin(self) -> None:
        count = self.random.choice([1, 2, 4])
        nodes = [node for node in PLUGIN if self.free()[node] >= count]
        if not nodes:
            return
        node = self.random.choice(nodes)
        assert self.requested[node] + count <= GPUS, f"{node} is given twice"
        self.number += 1
        body = gpu_pod_body(f"p{self.number}", node=node, gpus={"nvidia": str(count)})
        body["metadata"]["uid"] = f"p{self.number}"
        self.requested[node] += count
        self.plugin_pods[f"p{self.number}"] = node, count
        self.put_pod(body)

    def release(self) -> None:
        if self.claims and self.random.random() < 0.6:
            name = self.random.choice(sorted(self.claims))
            node, devices = self.claims.pop(name)
            self.held[node] -= devices
            uid = f"pod-{name.removeprefix('c')}"
            events = [lambda: self.fleet.remove_claim(f"uid-{name}")]
            if self.pods.pop(uid, None) is not None:
                events.append(lambda: self.fleet.remove_pod(uid))
            self.random.shuffle(events)
            for event in events:
                event()
        elif self.plugin_pods:
            uid = self.random.choice(sorted(self.plugin_pods))
            node, count = self.plugin_pods.pop(uid)
            self.requested[node] -= count
            del self.pods[uid]
            self.fleet.remove_pod(uid)

    def republish(self) -> None:
        """A driver restarts, and publishes its devices in another generation."""
        node = self.random.choice(DRA)
        self.slices[node] += 1
        self.publish(node)

    def pod_ends(self) -> None:
        """A pod has finished, and its claim is not deallocated yet."""
        known = [uid for uid in sorted(self.pods) if uid.startswith("pod-")]
        if known:
            uid = self.random.choice(known)
            del self.pods[uid]
            self.fleet.remove_pod(uid)

    def check(self) -> None:
        wanted = {node: GPUS - len(held) for node, held in self.held.items()}
        wanted |= {node: GPUS - count for node, count in self.requested.items()}
        assert self.free() == wanted


@pytest.mark.parametrize("part", range(10))
def test_no_gpu_is_given_twice_in_a_thousand_histories(part: int) -> None:
    for seed in range(part * HISTORIES // 10, (part + 1) * HISTORIES // 10):
        truth = Truth(Random(seed))
        truth.start()
        steps = [
            *(truth.place_claim, truth.place_claim, truth.place_on_plugin),
            *(truth.release, truth.republish, truth.pod_ends),
        ]
        for _ in range(STEPS):
            truth.random.choice(steps)()
            truth.check()
        snapshot = truth.fleet.snapshot()
        assert isinstance(snapshot, FleetSnapshot)
        rebuilt = Fleet.of(snapshot, CATALOG)
        assert rebuilt.pools() == truth.fleet.pools()
