"""Random histories of ResourceClaims: no device is allocated twice, no replica is started without a
free one, and what is free is what claims leave."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pytest

from e2e.harness.rest import Json
from e2e.journeys.conftest import UseFleet
from e2e.journeys.plugin import Plugin
from e2e.journeys.pools import counts, shown
from e2e.journeys.user import User
from e2e.models import inference

HISTORIES = 20
ROUNDS = 2
DRIVER, POOL = "gpu.amd.com", "amd-mi300x-dra"
NODES = ["mi300x-0", "mi300x-1", "mi300x-2"]
GPUS = 4
FLEET: Json = {
    "groups": [
        {
            "name": "mi300x",
            "accelerator": "mi300x",
            "draDriver": "current",
            "count": len(NODES),
            "gpusPerNode": GPUS,
        },
        {"name": "h100", "accelerator": "h100-sxm-80gb"},
    ]
}
NAMES = ("alpha", "beta", "gamma", "delta")
MODELS = ("llama-3.1-8b", "llama-3.1-8b", "llama-3.1-405b-fp8")
"""Of one GPU, and of four: a whole node."""

ADMIN_ACCESS = "resource.kubernetes.io/admin-access"


class History:
    """One history in a namespace: users, other workloads and the driver act in turn.

    Others act only once all pods of ours have their devices, and on devices that are free: so none
    of ours ever loses a device that it was promised.
    """

    def __init__(self, user: User, chance: Random) -> None:
        self.user, self.admin, self.chance = user, user.admin, chance
        self.slices: dict[str, Json] = {}
        for node in NODES:
            body = self.admin.get("resourceslices", f"{node}-{DRIVER}")
            assert body is not None
            self.slices[node] = body
        self.others = 0
        labels = {"metadata": {"labels": {ADMIN_ACCESS: "true"}}}
        self.admin.patch("namespaces", user.namespace, labels)

    # Acts of users

    def act(self) -> None:
        self.chance.choice((self.apply, self.apply, self.scale, self.delete))()

    def apply(self) -> None:
        """Create an object, or change it to another model, which is a rollout."""
        name, model = self.chance.choice(NAMES), self.chance.choice(MODELS)
        replicas = self.chance.randint(0, 3)
        placement = {"accelerators": ["mi300x"]}
        self.user.apply(inference(name, model, replicas=replicas, placement=placement))

    def scale(self) -> None:
        for model in self.admin.items("infd")[:1]:
            name = model["metadata"]["name"]
            self.admin.patch("infd", name, {"spec": {"replicas": self.chance.randint(0, 4)}})
            self.user.forget(name)

    def delete(self) -> None:
        name = self.chance.choice(NAMES)
        self.user.forget(name)
        self.admin.delete("infd", name, timeout=None)

    # Acts of others

    def disturb(self) -> None:
        if self.waiting():
            return
        acts: list[Callable[[], None]] = [self.claim, self.claim, self.release, self.inspect]
        acts += [self.taint, self.heal, self.withdraw, self.publish]
        self.chance.choice(acts)()

    def claim(self) -> None:
        """A pod of another workload takes free devices of one node."""
        roomy = {node: free for node, free in self.free().items() if free}
        if roomy:
            self.run_pod(self.chance.randint(1, roomy[self.chance.choice(sorted(roomy))]))

    def inspect(self) -> None:
        """A monitor reads a device, whatever claim holds it."""
        self.run_pod(1, adminAccess=True)

    def run_pod(self, count: int, **request: Any) -> None:
        self.others += 1
        name = f"other-{self.others}"
        exactly = {"deviceClassName": DRIVER, "count": count, **request}
        metadata = {"name": name, "namespace": self.user.namespace}
        container = {"name": "main", "image": "job", "resources": {"claims": [{"name": "gpus"}]}}
        self.admin.apply(
            [
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceClaim",
                    "metadata": metadata,
                    "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
                },
                {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "metadata": metadata | {"labels": {"other": "true"}},
                    "spec": {
                        "containers": [container],
                        "resourceClaims": [{"name": "gpus", "resourceClaimName": name}],
                        "terminationGracePeriodSeconds": 0,
                    },
                },
            ]
        )
        self.admin.wait_for("pods", name, lambda pod: pod["spec"].get("nodeName"))

    def release(self) -> None:
        self.end_others(most=1)

    def end_others(self, most: int | None = None) -> None:
        for pod in self.admin.items("pods", selector="other=true")[:most]:
            name = pod["metadata"]["name"]
            self.admin.delete("pods", name)
            self.admin.delete("resourceclaims", name)

    def taint(self) -> None:
        """The driver finds a free device broken."""
        node = self.chance.choice(NODES)
        held = self.held()
        self.change_devices(
            node,
            lambda device: (
                {"taints": [{"key": "gpu.amd.com/broken", "effect": "NoSchedule"}]}
                if (node, device["name"]) not in held
                else {}
            ),
            most=1,
        )

    def heal(self) -> None:
        self.change_devices(self.chance.choice(NODES), lambda _: {"taints": []})

    def change_devices(self, node: str, change: Callable[[Json], Json], most: int = GPUS) -> None:
        body = self.slices[node]
        devices, changed = [], 0
        for device in body["spec"]["devices"]:
            more = change(device) if changed < most else {}
            changed += bool(more)
            devices.append(device | more)
        self.slices[node] = {**body, "spec": body["spec"] | {"devices": devices}}
        if self.published(node):
            self.publish_one(node)

    def withdraw(self) -> None:
        """The driver of a node goes down in order. Pods of others that run there keep their
        devices. Where one of ours runs, the operator keeps GPUs free to replace it."""
        there = [node for node in NODES if self.published(node)]
        ours = self.admin.items("pods", selector="tonnage.dev/inferencedeployment")
        vacant = sorted(set(there) - {pod["spec"]["nodeName"] for pod in ours})
        if len(there) > 1 and vacant:
            self.admin.delete("resourceslices", f"{self.chance.choice(vacant)}-{DRIVER}")

    def publish(self) -> None:
        for node in NODES:
            if not self.published(node):
                self.publish_one(node)

    def published(self, node: str) -> bool:
        return self.admin.get("resourceslices", f"{node}-{DRIVER}") is not None

    def publish_one(self, node: str) -> None:
        body = self.slices[node]
        metadata = {key: body["metadata"][key] for key in ("name", "labels")}
        self.admin.apply({**body, "metadata": metadata})

    # What is true

    def held(self) -> Counter[tuple[str, str]]:
        """The devices that claims hold, by node and name, of all namespaces."""
        return Counter(
            (result["pool"], result["device"])
            for claim in self.admin.items("resourceclaims", everywhere=True)
            for result in claim.get("status", {})
            .get("allocation", {})
            .get("devices", {})
            .get("results", [])
            if not result.get("adminAccess")
        )

    def free(self) -> dict[str, int]:
        """Devices that the scheduler may allocate now, by node."""
        held = self.held()
        return dict.fromkeys(NODES, 0) | {
            body["spec"]["nodeName"]: sum(
                not device.get("taints") and (body["spec"]["nodeName"], device["name"]) not in held
                for device in body["spec"]["devices"]
            )
            for body in self.admin.items("resourceslices", everywhere=True)
        }

    def counts(self) -> tuple[int, ...]:
        """What the operator has to count: total, allocatable, free, most free on one node."""
        devices = [
            device
            for body in self.admin.items("resourceslices", everywhere=True)
            for device in body["spec"]["devices"]
        ]
        free = self.free().values()
        usable = sum(not device.get("taints") for device in devices)
        return len(devices), usable, sum(free), max(free)

    def waiting(self) -> list[int]:
        """How many devices each pod that waits for some has claimed."""
        requested = {
            claim["metadata"]["name"]: claim["spec"]["devices"]["requests"][0]["exactly"]["count"]
            for claim in self.admin.items("resourceclaims")
        }
        return [
            sum(
                requested.get(claim.get("resourceClaimName", ""), 0)
                for claim in pod.get("status", {}).get("resourceClaimStatuses", [])
            )
            for pod in self.admin.items("pods")
            if not pod["spec"].get("nodeName")
        ]

    def acted_upon(self) -> bool:
        """Whether the operator has seen the newest spec of each object, and the pods of the
        Deployments that it made are created. Before that, no pod waits, and others may not act."""
        return all(
            model.get("status", {}).get("observedGeneration") == model["metadata"]["generation"]
            for model in self.admin.items("infd")
        ) and all(
            status.get("observedGeneration") == deployment["metadata"]["generation"]
            and status.get("replicas", 0) >= deployment["spec"]["replicas"]
            for deployment in self.admin.items("deployments")
            for status in [deployment.get("status", {})]
        )

    def rolled_out(self) -> bool:
        """Whether each Deployment is of an object, and has its pods, all of its newest template and
        none besides: no pod asks for devices, or gives some back, unless somebody acts."""
        owners = {model["metadata"]["uid"] for model in self.admin.items("infd")}
        deployments = self.admin.items("deployments")
        pods = self.admin.items("pods", selector="tonnage.dev/inferencedeployment")
        return len(pods) == sum(one["spec"]["replicas"] for one in deployments) and all(
            deployment["metadata"]["ownerReferences"][0]["uid"] in owners
            and status.get("replicas", 0)
            == status.get("updatedReplicas", 0)
            == deployment["spec"]["replicas"]
            for deployment in deployments
            for status in [deployment.get("status", {})]
        )

    def lacks_gpus_to_replace(self) -> bool:
        """Whether an object with replicas that answer says that there are no GPUs for others."""
        conditions = [
            {one["type"]: one for one in model["status"]["conditions"]}
            for model in self.admin.items("infd")
        ]
        return any(
            one["Available"]["status"] == "True" and one["Placed"]["reason"] == "InsufficientGPUs"
            for one in conditions
        )

    def settled(self) -> bool:
        """Whether all pods are there and have devices, and the operator counts what claims leave.

        A replica of several GPUs may wait where enough are free, but not on one node: the scheduler
        spreads smaller pods over nodes. So may one whose object replaces smaller replicas, if its
        status says that GPUs are lacking. Until then, the operator keeps at most as many for it.
        """
        held = self.held()
        assert set(held.values()) <= {1}, f"devices allocated twice: {held}"
        if not self.acted_upon():
            return False
        free, waiting = self.free(), self.waiting()
        shown_counts, true_counts = counts(shown(self.admin, POOL)), self.counts()
        if not waiting:
            return self.rolled_out() and shown_counts == true_counts
        scattered = all(gpus > max(free.values()) for gpus in waiting)
        kept = true_counts[2] - shown_counts[2]
        return (
            scattered
            and (sum(waiting) <= sum(free.values()) or self.lacks_gpus_to_replace())
            and 0 <= kept <= sum(waiting)
            and shown_counts[:2] == true_counts[:2]
        )

    def describe(self) -> str:
        """What is not as it has to be."""
        seen = [f"{counts(shown(self.admin, POOL))}, expected {self.counts()}, {self.free()}"]
        seen.append(f"pods wait for {self.waiting()} devices")
        seen += [
            f"{model['metadata']['name']}: {model['spec']['replicas']} of {model.get('status')}"
            for model in self.admin.items("infd")
        ]
        return "\n".join(seen)

    def settle(self) -> None:
        self.admin.until("all to settle", self.settled, timeout=240, describe=self.describe)


@pytest.fixture
def begin(fleet: UseFleet, user: User) -> Iterator[Callable[[int], History]]:
    """Begins a history of its own nodes; its other workloads end with it."""
    histories = []

    def make(seed: int) -> History:
        fleet(FLEET)
        histories.append(History(user, Random(seed)))
        return histories[-1]

    yield make
    for history in histories:
        history.end_others()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_no_device_is_promised_twice(
    seed: int, begin: Callable[[int], History], user: User, plugin: Plugin
) -> None:
    history = begin(seed)
    history.settle()
    for _ in range(ROUNDS):
        for _ in range(history.chance.randint(2, 5)):
            history.act()
        history.settle()
        history.disturb()
    history.settle()
    user.await_quiet()
    history.settle()
    pools = json.loads(plugin.run("pools", "--output=json", "--all"))["items"]
    (pool,) = (one for one in pools if one["name"] == POOL)
    free = {node["name"]: node["free"] for node in pool["nodes"]}
    assert free == {node: count for node, count in history.free().items() if node in free}
    gpus = pool["gpus"]
    assert (gpus["total"], gpus["allocatable"], gpus["free"]) == history.counts()[:3]
