"""A whole cluster in memory with the operator in it: what a test of the loop acts on.

The operator is woken as in earnest: by a change of an object or of what belongs to it, by a requeue
that has come due, and by room for those who wait for it. A wake that is forgotten shows as a state
that is never reached.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from e2e.fleet_nodes import render_nodes
from tests.support.controllers import Behaviour, run_deployments, run_pods, schedule_pods
from tests.support.fake_api import Crash, FakeApi
from tests.support.fake_clock import FakeClock
from tests.support.fleet_objects import show
from tests.support.shapes import CONFIGS
from tonnage.api.inference import HuggingFaceSource
from tonnage.api.names import LABEL_OWNER
from tonnage.api.shard import UNNAMED_SHARD
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.lookup import ModelAnswer, ModelPending
from tonnage.kube.forwarding import SHARDED, ShardKubeApi
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    INFERENCE_POOLS,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    Kind,
    NotFoundError,
    Object,
    TransientError,
)
from tonnage.reconcile.context import Dependencies
from tonnage.reconcile.first_child import REST_SECONDS
from tonnage.reconcile.key import Key
from tonnage.reconcile.learning import KeptInMind
from tonnage.reconcile.looks import BELONGINGS, Looks
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.newborns import Newborns
from tonnage.reconcile.observe import MeasureLoad
from tonnage.reconcile.priority import read_classes
from tonnage.reconcile.reconciler import Reconciler
from tonnage.reconcile.stock import take_stock
from tonnage.render.model import RenderSettings
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.status_book import StatusBook
from tonnage.telemetry.cache import MeasuredCache
from tonnage.telemetry.load import LoadQuestion
from tonnage.telemetry.pods import ServingPod

NAMESPACE = "chat"
WORLD = Dependencies(load_catalog(), RenderSettings())

MI300X = {"name": "mi300x", "accelerator": "mi300x"}
H100 = {"name": "h100", "accelerator": "h100-sxm-80gb"}
L40S = {"name": "l40s", "accelerator": "l40s", "gpusPerNode": 4}

_MAX_ROUNDS = 60


def spec_of(model: str = "llama-3.1-8b", **spec: Any) -> Object:
    """A spec as a user writes it; `workload` is added to, all other fields are replaced."""
    config = json.loads((CONFIGS / f"{model}.json").read_text("utf-8"))
    workload = {"maxModelLen": 8192, **spec.pop("workload", {})}
    return {
        "model": {"name": model, "source": {"inline": {"config": config}}},
        "workload": workload,
        "replicas": 1,
        **spec,
    }


class Told:
    """Events, as (type of the condition, reason), and their notes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.notes: list[str] = []

    async def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None:
        self.events.append((action, reason))
        self.notes.append(note)


class Hub:
    """A Hub that answers what the test says."""

    def __init__(self) -> None:
        self.answer: ModelAnswer = ModelPending("reading the model's files")

    def lookup(self, source: HuggingFaceSource, token: str | None, wake: object) -> ModelAnswer:
        return self.answer


class Cluster:
    """Nodes, users, Kubernetes' controllers, and the operator."""

    world = WORLD
    shard = UNNAMED_SHARD

    def __init__(self, *groups: Mapping[str, Any]) -> None:
        self.api = FakeApi()
        self.clock = FakeClock()
        self.told, self.hub = Told(), Hub()
        self.behaviours: dict[str, Behaviour] = {}
        self.errors: list[ApiError] = []
        self.reconciled: list[Key] = []
        self.measure_load: MeasureLoad = _no_answer
        self.measured: dict[str, MeasuredCache] = {}
        self.lessons = KeptInMind()
        self.start_operator()
        for group in groups:
            self.join(**group)

    async def copy(self) -> "Cluster":
        """One just like this, at rest, whose operator was begun anew; no fault is left in it."""
        other = type(self)()
        other.api, other.behaviours = self.api.copy(), dict(self.behaviours)
        other.clock.advance(self.clock.seconds - other.clock.seconds)
        other.start_operator()
        await other.settle()
        return other

    # The operator

    def start_operator(self) -> None:
        """A new process: nothing is known but what is stored, and every key is looked at."""
        self.fleet = FleetState(
            WORLD.catalog,
            on_change=self._wake_lapsed,
            on_room=self._wake_waiting,
            on_loss=lambda key: self._due.update({key: self.clock.seconds}),
            shard=self.shard,
        )
        self.moves = Moves()
        self.looks, self.newborns = Looks(self.clock.now), Newborns()
        self.newborns.prime(self._sights())
        self._told: dict[Key, dict[str, str]] = {}
        self.statuses = StatusBook(frozenset(WORLD.catalog.accelerators))
        self.reconciler = Reconciler(
            api=ShardKubeApi(self.api, self.shard),
            hub=self.hub,
            fleet=self.fleet,
            moves=self.moves,
            events=self.told,
            book=self.statuses,
            world=self.world,
            measure=self._measure,
            wake=lambda key: self._due.update({key: self.clock.seconds}),
            now=self.clock.now,
            measure_load=lambda question: self.measure_load(question),
            lessons=self.lessons,
            looks=self.looks,
            newborns=self.newborns,
        )
        self._seen: dict[Key, object] = {}
        self._due: dict[Key, float] = {}
        self._watched: object = None
        self.watch()
        take_stock(
            self.fleet,
            self.moves,
            self.api.objects(DEPLOYMENTS),
            self.api.objects(INFERENCE_DEPLOYMENTS),
            read_classes(self.api.objects(PRIORITY_CLASSES)),
        )

    async def _measure(self, key: Key, pods: list[ServingPod]) -> Mapping[str, MeasuredCache]:
        """`measured` is by object, or by the name of a Deployment, which says more."""
        found = {}
        for pod in pods:
            told = [name for name in self.measured if pod.name.startswith(f"{name}-")]
            if told:
                found[pod.name] = self.measured[max(told, key=len)]
        return found

    def watch(self) -> None:
        """The operator's cache learns what is stored."""
        self.api.now = self.clock.now()
        stored = [self.api.versions(kind) for kind in (NODES, PODS, ACCELERATOR_POOLS)]
        if stored == self._watched:
            return
        self._watched = stored
        for kind in (NODES, PODS, ACCELERATOR_POOLS):
            mine = self.shard.has if kind in SHARDED else None
            show(self.fleet, kind, filter(mine, self.api.objects(kind)))

    async def reconcile(self, name: str) -> float | None:
        """One reconcile that looks at the object; the seconds after which the operator wants to
        look again."""
        seconds = await self.take_turn(name)
        return await self.take_turn(name) if seconds == REST_SECONDS else seconds

    async def take_turn(self, name: str) -> float | None:
        """One reconcile, of a new object perhaps that which makes its first child only."""
        self.watch()
        key = Key(NAMESPACE, name)
        self._due.pop(key, None)
        self._seen[key] = self._sights().get(key)
        self.tell_versions(key)
        requeue = await self.reconciler.reconcile(key)
        self.reconciled.append(key)
        if requeue.seconds is not None:
            self._due[key] = self.clock.seconds + requeue.seconds
        return requeue.seconds

    def tell_versions(self, key: Key) -> None:
        """What the watches tell of the object and its belongings, before it is looked at."""
        found = dict(version.split("@") for version in self._sights().get(key, []))
        before = self._told.get(key, {})
        for uid in before.keys() | found.keys():
            if before.get(uid) != found.get(uid):
                self.looks.tell(key, uid, found.get(uid))
                self._tell_newborns(key, uid, "MODIFIED" if uid in before else "ADDED")
        self._told[key] = found

    def _tell_newborns(self, key: Key, uid: str, event_type: str) -> None:
        with suppress(NotFoundError):
            itself = self.api.object(INFERENCE_DEPLOYMENTS, key.namespace, key.name)
            if itself["metadata"]["uid"] == uid:
                self.newborns.tell(key, event_type, itself)
                return
        for kind in BELONGINGS:
            there = {found["metadata"]["uid"] for found in self.api.objects(kind)}
            if uid in there or event_type == "MODIFIED":  # which can be its end
                self.newborns.outgrow(key, kind)

    # Time

    async def settle(self, order: Iterable[str] | None = None) -> None:
        """Let the operator and all controllers work until nobody has anything to do."""
        for _ in range(_MAX_ROUNDS):
            before, sights = self._everything(), self._sights()
            for key in self._keys(order):
                if self._wants_work(key, sights):
                    await self._attempt(key)
            self.step()
            sights = self._sights()
            waiting = any(self._wants_work(key, sights) for key in self._keys(order))
            if not waiting and before == self._everything():
                return
        raise AssertionError(f"not settled after {_MAX_ROUNDS} rounds; {self.conditions_of_all()}")

    async def resync(self) -> None:
        """Look at every key once more, as the operator does every few minutes."""
        self.look_at_all()
        await self.settle()

    def look_at_all(self) -> None:
        """Every key wants work, as when a pool is declared otherwise."""
        self._seen.clear()
        self.watch()

    async def wait(self, seconds: float) -> None:
        """Let time pass, then settle."""
        self.clock.advance(seconds)
        await self.settle()

    def step(self) -> None:
        """Every controller but the operator does one step."""
        self.api.now = self.clock.now()
        self.api.collect_garbage()
        run_deployments(self.api)
        schedule_pods(self.api)
        run_pods(self.api, self.behaviours)
        run_deployments(self.api)
        self.watch()

    # Users and nodes

    def join(self, **group: Any) -> None:
        """Nodes of a group as in a file of e2e/fleets."""
        for node in render_nodes({"groups": [group]}):
            self.api.put(NODES, node)
        self.watch()

    def cordon(self, prefix: str, cordoned: bool = True) -> None:
        """Let the nodes whose names begin so take no new pods, or take them again."""
        for node in self._nodes(prefix):
            node["spec"]["unschedulable"] = cordoned
            self.api.put(NODES, node)
        self.watch()

    def silence(self, prefix: str, heard: bool = False) -> None:
        """Nobody hears of the nodes whose names begin so, or does again."""
        for node in self._nodes(prefix):
            told = node["status"].get("conditions", [])
            others = [one for one in told if one["type"] != "Ready"]
            ready = {"type": "Ready", "status": "True" if heard else "Unknown"}
            node["status"]["conditions"] = [*others, ready]
            self.api.put(NODES, node)
        self.watch()

    def leave(self, prefix: str) -> None:
        """The nodes whose names begin so are gone."""
        for node in self._nodes(prefix):
            self.api.remove(NODES, None, node["metadata"]["name"])
        self.watch()

    def relabel(self, prefix: str, labels: Mapping[str, str]) -> None:
        """The nodes whose names begin so have these labels instead of all others."""
        for node in self._nodes(prefix):
            node["metadata"]["labels"] = dict(labels)
            self.api.put(NODES, node)
        self.watch()

    def occupy(self, node: str, gpus: int, resource: str = "amd.com/gpu") -> None:
        """A pod of somebody else holds GPUs."""
        limits = {resource: str(gpus)}
        self.api.put(
            PODS,
            {
                "metadata": {"name": f"other-{node}", "namespace": "other"},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "x", "resources": {"limits": limits}}],
                },
                "status": {"phase": "Running"},
            },
        )
        self.watch()

    def free(self, node: str) -> None:
        """The pod of somebody else is gone."""
        self.api.remove(PODS, "other", f"other-{node}")
        self.watch()

    def apply(self, name: str, spec: Object) -> None:
        """What `kubectl apply` does."""
        body: Object = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        with suppress(NotFoundError, KeyError):
            body["status"] = self.api.object(INFERENCE_DEPLOYMENTS, NAMESPACE, name)["status"]
        self.api.now = self.clock.now()
        self.api.put(INFERENCE_DEPLOYMENTS, body)

    def delete(self, name: str) -> None:
        """What `kubectl delete` does; children stay until the garbage collector comes."""
        self.api.remove(INFERENCE_DEPLOYMENTS, NAMESPACE, name)

    # What is there

    def inference_deployment(self, name: str = "llama") -> Object:
        return self.api.object(INFERENCE_DEPLOYMENTS, NAMESPACE, name)

    def status(self, name: str = "llama") -> Object:
        found: Object = self.inference_deployment(name).get("status", {})
        return found

    def conditions(self, name: str = "llama") -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        found = self.status(name).get("conditions", [])
        return {one["type"]: (one["status"], one["reason"]) for one in found}

    def message(self, kind: str, name: str = "llama") -> str:
        """Message of one condition."""
        found = self.status(name)["conditions"]
        return str(next(one["message"] for one in found if one["type"] == kind))

    def conditions_of_all(self) -> dict[str, dict[str, tuple[str, str]]]:
        names = [body["metadata"]["name"] for body in self.api.objects(INFERENCE_DEPLOYMENTS)]
        return {name: self.conditions(name) for name in names}

    def deployments(self) -> list[str]:
        """Names of all Deployments."""
        return [body["metadata"]["name"] for body in self.api.objects(DEPLOYMENTS)]

    def deployment(self, name: str) -> Object:
        return self.api.object(DEPLOYMENTS, NAMESPACE, name)

    def pods(self, owner: str = "llama") -> list[Object]:
        return [
            pod
            for pod in self.api.objects(PODS)
            if pod["metadata"].get("labels", {}).get(LABEL_OWNER) == owner
        ]

    # Inside

    async def _attempt(self, key: Key) -> None:
        """As the workers do: what may pass by itself is tried again, the rest waits."""
        try:
            await self.take_turn(key.name)
        except Crash:
            self.start_operator()
        except (ConflictError, NotFoundError, TransientError) as error:
            self.errors.append(error)
            del self._seen[key]
        except ApiError as error:
            self.errors.append(error)

    def _wants_work(self, key: Key, sights: Mapping[Key, object]) -> bool:
        if self._due.get(key, float("inf")) <= self.clock.seconds or key not in self._seen:
            return True
        return self._seen[key] != sights.get(key)

    def _sights(self) -> dict[Key, list[str]]:
        """By key, the versions of all objects whose events wake it."""
        found: dict[Key, list[str]] = {}
        for namespace, name, version, _ in self.api.versions(INFERENCE_DEPLOYMENTS):
            found.setdefault(Key(namespace, name), []).append(version)
        for kind in (INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, PODS):
            for namespace, _, version, owner in self.api.versions(kind):
                if owner is not None:
                    found.setdefault(Key(namespace, owner), []).append(version)
        return found

    def _wake_waiting(self) -> None:
        for key in self.fleet.waiting_keys():
            self._due[key] = self.clock.seconds

    def _wake_lapsed(self) -> None:
        for key in self.moves.lapsed(self.fleet.view().pools()):
            self._due[key] = self.clock.seconds

    def _keys(self, order: Iterable[str] | None) -> list[Key]:
        """Every key ever seen, so that a deletion is noticed too."""
        there = {name for _, name, _, _ in self.api.versions(INFERENCE_DEPLOYMENTS)}
        known = self._seen.keys() | self.fleet.known_keys()
        names = sorted(there | {key.name for key in known})
        wanted = [name for name in order if name in names] if order is not None else names
        return [Key(NAMESPACE, name) for name in wanted]

    def _everything(self) -> object:
        kinds = (INFERENCE_DEPLOYMENTS, DEPLOYMENTS, SERVICES, INFERENCE_POOLS, PODS, NODES)
        return [self.api.versions(kind) for kind in kinds]

    def _nodes(self, prefix: str) -> list[Object]:
        found = self.api.objects(NODES)
        return [node for node in found if node["metadata"]["name"].startswith(prefix)]


async def _no_answer(question: LoadQuestion) -> None:
    """Nobody knows the load."""


def write_count(api: FakeApi, kinds: Iterable[Kind] = (DEPLOYMENTS, SERVICES)) -> int:
    """Writes of the operator that changed an object of these kinds."""
    return sum(1 for call in api.effective_writes() if call.kind in tuple(kinds))
