"""A whole cluster in memory with the operator in it: what a test of the loop acts on.

The operator is woken as in earnest: by a change in its stores, by a requeue that has come due, and
by free GPUs for objects that wait. A wake that is forgotten shows as a state that is never reached.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf
from typing import Any

from e2e.nodes.descriptions import render_nodes
from tests.support.api_server.fake_api import Crash, FakeApi, has_fields
from tests.support.engines.shapes import CONFIGS
from tests.support.faults.fake_clock import FakeClock
from tests.support.in_memory.controllers import Behaviour, run_deployments, run_pods, with_times
from tests.support.in_memory.in_memory_corrections import InMemoryCorrections
from tests.support.in_memory.jobs import downloaded, run_jobs
from tests.support.in_memory.leader_worker_sets import run_leader_worker_sets
from tests.support.in_memory.pod_adapters import FakePodAdapters
from tests.support.production.admission import Admission
from tests.support.production.kinds import ADMINISTERED
from tests.support.production.quotas import count_quotas
from tests.support.production.resources import has_finished
from tests.support.production.scheduler import schedule_pods
from tests.support.production.webhooks import Webhook
from tonnage import delays
from tonnage.api.model import HuggingFaceSource
from tonnage.api.names import LABEL_OWNER
from tonnage.api.shard import UNNAMED_SHARD
from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.adapter import AdapterFacts
from tonnage.checkpoint.lookup import AdapterAnswer, HubLookup, ModelAnswer, ModelPending
from tonnage.controller.download_reader import DownloadReader
from tonnage.controller.metrics.statuses import StatusMetrics
from tonnage.controller.pod_report_cache import PodReportCache
from tonnage.controller.queueing.priority import Priority
from tonnage.controller.start_reader import StartReader
from tonnage.engines.inputs import RenderSettings
from tonnage.engines.metrics import MeasuredCache
from tonnage.fleet.fleet import Fleet
from tonnage.informers.stores import Stores
from tonnage.kube.kinds import (
    COMPUTE_DOMAINS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    INFERENCE_POOLS,
    JOBS,
    LEADER_WORKER_SETS,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    PRIORITY_CLASSES,
    SERVICES,
)
from tonnage.kube.objects import ObjectParser
from tonnage.kube.protocol import (
    ApiError,
    ConflictError,
    Kind,
    NotFoundError,
    Object,
    TransientError,
    has_labels,
)
from tonnage.kube.rights import Right
from tonnage.manager.scope import PARTS, WATCHED, Scope
from tonnage.manager.triggers import Triggers
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.pods.starts import FinishedStart
from tonnage.reconcile.observation.priority import Priorities, read_classes
from tonnage.reconcile.observation.volumes import VolumeReader
from tonnage.reconcile.observe import MeasureLoad, Sources
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.rebuild import rebuild_state
from tonnage.reconcile.reconciler import Reconciler
from tonnage.reconcile.scheduling.context import Dependencies
from tonnage.reconcile.scheduling.migration_lock import MigrationLock
from tonnage.telemetry.load import LoadQuery
from tonnage.telemetry.pods import ServingPod
from tonnage.workloads.registry import WORKLOAD_KINDS
from tonnage.workloads.weights_job import POD_NAME

NAMESPACE = "chat"
WORLD = Dependencies(load_catalog(), RenderSettings())

MI300X = {"name": "mi300x", "accelerator": "mi300x"}
H100 = {"name": "h100", "accelerator": "h100-sxm-80gb"}
L40S = {"name": "l40s", "accelerator": "l40s", "gpusPerNode": 4}

_MAX_ROUNDS = 60

_PARSERS = {kind: ObjectParser(kind, parts) for kind, parts in PARTS.items()}

_SOON_SECONDS = delays.BATCH
"""What is due so soon is done before the world is said to have settled."""


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


class FakeRecorder:
    """Events, as (type of the condition, reason), and their notes."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.notes: list[str] = []

    def record(
        self, regarding: Mapping[str, Any], warning: bool, reason: str, note: str, action: str
    ) -> None:
        self.events.append((action, reason))
        self.notes.append(note)


class Hub:
    """A Hub that answers what the test says."""

    def __init__(self) -> None:
        self.answer: ModelAnswer = ModelPending("reading the model's files")
        self.adapter: AdapterAnswer = AdapterFacts(rank=16)
        self.commits: dict[str, ModelAnswer] = {}
        """Answers to questions about a commit."""

    def copy(self) -> "Hub":
        """Another one that gives the same answers."""
        other = Hub()
        other.answer, other.adapter, other.commits = self.answer, self.adapter, dict(self.commits)
        return other

    def lookup(self, source: HuggingFaceSource, token: str | None, wake: object) -> ModelAnswer:
        return self.commits.get(source.revision, self.answer)

    def lookup_adapter(self, source: HuggingFaceSource) -> AdapterAnswer:
        """The adapter, whatever the source."""
        return self.adapter


def key_of(name: str) -> Key:
    """The key of an object that a test calls `llama`, or `team-a/llama` in another namespace."""
    namespace, _, short = name.rpartition("/")
    return Key(namespace or NAMESPACE, short)


def _name_of(key: Key) -> str:
    return key.name if key.namespace == NAMESPACE else f"{key.namespace}/{key.name}"


class Cluster:
    """Nodes, users, Kubernetes' controllers, and the operator. A test names an object by its name,
    and one of another namespace than NAMESPACE as `team-a/llama`."""

    world = WORLD
    shard = UNNAMED_SHARD

    def __init__(self, *groups: Mapping[str, Any]) -> None:
        self.api = FakeApi()
        self.api.admission = self.admission = Admission()
        self.collects_orphans = True
        self.clock = FakeClock()
        self.recorder, self.hub = FakeRecorder(), Hub()
        self.behaviours: dict[str, Behaviour] = {POD_NAME: downloaded}
        self.errors: list[ApiError] = []
        self.reconciled: list[Key] = []
        self.measure_load: MeasureLoad = _no_answer
        self.measured: dict[str, MeasuredCache] = {}
        self.correction_registry = InMemoryCorrections()
        self.finished_starts: list[FinishedStart] = []
        self.pod_adapters = FakePodAdapters(self._wake)
        self.missing_right: Right | None = None
        self.has_budgets = True
        self.has_leader_worker_set = False
        self.has_compute_domains = False
        self.groups_surge = False
        self.denied: set[Kind] = set()
        """Optional kinds that the operator may not list."""
        self.start_operator()
        for group in groups:
            self.join(**group)

    async def copy(self) -> "Cluster":
        """One just like this, at rest, whose operator was begun anew; no fault is left in it."""
        other = type(self)()
        other.api, other.behaviours = self.api.copy(), dict(self.behaviours)
        other.admission = self.admission
        other.has_leader_worker_set = self.has_leader_worker_set
        other.has_compute_domains = self.has_compute_domains
        other.groups_surge = self.groups_surge
        other.hub = self.hub.copy()
        other.clock.advance(self.clock.seconds - other.clock.seconds)
        other.start_operator()
        await other.settle()
        return other

    # The operator

    def start_operator(self) -> None:
        """A new process: nothing is known but what is stored, and every key is reconciled."""
        self._due: dict[Key, float] = {}
        self._has_freed_capacity = False
        self.fleet = FleetState(
            Fleet(WORLD.catalog, self.shard),
            on_change=self._wake_lapsed,
            on_capacity_freed=self._note_freed_capacity,
            on_loss=self._wake,
        )
        self.migration_lock = MigrationLock(self._wake)
        self.statuses = StatusMetrics(frozenset(WORLD.catalog.accelerators))
        triggers = Triggers(self, self.fleet)
        self.stores = Stores(triggers.on_change)
        self.reconciler = self._build_reconciler()
        self._events: list[tuple[Kind, str, Object]] = []
        self._list_all()
        rebuild_state(
            self.fleet,
            self.migration_lock,
            ((Key(*owner), bodies) for owner, bodies in self.stores.workloads_by_owner()),
            self.api.objects(INFERENCE_DEPLOYMENTS),
            read_classes(self.api.objects(PRIORITY_CLASSES)),
            self.statuses.record,
        )
        self.statuses.complete()
        self.look_at_all()

    def _build_reconciler(self) -> Reconciler:
        self._planner = Planner(
            self.fleet, self.migration_lock, self.world, self.correction_registry.known
        )
        priorities = Priorities(lambda: self.api.list(PRIORITY_CLASSES), self.clock.now)
        self.sources = Sources(
            cache=self.stores,
            live=self.api,
            ask_hub=lambda key: HubLookup(
                lambda source, token: self.hub.lookup(source, token, None),
                lambda source, token: self.hub.lookup_adapter(source),
            ),
            measure=self._measure,
            measure_load=lambda question: self.measure_load(question),
            read_served=self.pod_adapters.read,
            find_priority=priorities.find,
            missing_right=lambda key: self.missing_right,
            has_kind=lambda kind: {
                POD_DISRUPTION_BUDGETS: self.has_budgets,
                LEADER_WORKER_SETS: self.has_leader_worker_set,
                COMPUTE_DOMAINS: self.has_compute_domains,
            }[kind],
            shard=self.shard,
            has_node=self.stores.has_node,
            read_reports=PodReportCache(self.api, self.clock.now, self.stores.ended_pods.take).read,
            read_download=DownloadReader(self.api, self.clock.now).read,
            read_starts=StartReader(
                self.api,
                self.clock.now,
                self.finished_starts.append,
                clock=self.clock.monotonic,
            ).read,
            read_volumes=VolumeReader(self.api, self.clock.now).read,
        )
        return Reconciler(
            sources=self.sources,
            writer=Writer(self.api, self.stores),
            planner=self._planner,
            record_event=self.recorder.record,
            status_metrics=self.statuses,
            now=self.clock.now,
            add_correction=self.correction_registry.add,
            update_adapters=self.pod_adapters.update,
        )

    # The work queue, as triggers know it

    def add(self, key: Key, priority: Priority = Priority.EVENT) -> None:
        """The key needs work now."""
        self._due[key] = self.clock.seconds

    def add_after(self, key: Key, seconds: float) -> None:
        """The key needs work later."""
        due = self.clock.seconds + seconds
        self._due[key] = min(due, self._due.get(key, due))

    def _wake(self, key: Key) -> None:
        self.add(key)

    async def _measure(self, key: Key, pods: list[ServingPod]) -> Mapping[str, MeasuredCache]:
        """`measured` is by object, or by the name of a Deployment, which says more."""
        by_pod = {}
        for pod in pods:
            names = [name for name in self.measured if pod.name.startswith(f"{name}-")]
            if names:
                by_pod[pod.name] = self.measured[max(names, key=len)]
        return by_pod

    def watch(self) -> None:
        """The operator's stores hear of what has happened."""
        self.api.now = self.clock.now()
        events, self._events = self._events, []
        for kind, event_type, body in events:
            self.stores.store_for(kind).observe(event_type, _as_read(kind, body))
        self._wake_waiting()

    def _list_all(self) -> None:
        self.api.now = self.clock.now()
        for kind in WATCHED:
            listing = self.stores.store_for(kind).begin_list()
            for body in filter(partial(self._is_selected, kind), self.api.objects(kind)):
                listing.take(_as_read(kind, body))
            listing.end(self.api.version)
        self.api.listeners[:] = [
            one for one in self.api.listeners if getattr(one, "__self__", None) is not self
        ]
        self.api.listeners.append(self._hear)

    def _hear(self, kind: Kind, event_type: str, body: Object) -> None:
        """A watch reports what is not selected any more as deleted, as an API server does."""
        if kind in WATCHED:
            seen_type = event_type if self._is_selected(kind, body) else "DELETED"
            self._events.append((kind, seen_type, body))

    def _is_selected(self, kind: Kind, body: Object) -> bool:
        if kind in self.denied:
            return False
        (selection,) = Scope(shard=self.shard, compute_domains=True).selections([kind])
        return has_labels(body, selection.labels or {}) and has_fields(body, selection.fields)

    async def reconcile(self, name: str) -> float | None:
        """One reconcile; the seconds after which the operator wants another one."""
        self.watch()
        key = key_of(name)
        self._due.pop(key, None)
        requeue = await self.reconciler.reconcile(key)
        self._wake_waiting()
        self.reconciled.append(key)
        if requeue.seconds is not None:
            self.add_after(key, requeue.seconds)
        return requeue.seconds

    # Time

    async def settle(self, order: Iterable[str] | None = None) -> None:
        """Let the operator and all controllers work until none has anything to do."""
        for _ in range(_MAX_ROUNDS):
            self.watch()
            before = self._everything()
            for key in self._keys(order):
                if self._wants_work(key):
                    await self._attempt(key)
            self.step()
            waiting = any(self._wants_work(key) for key in self._keys(order))
            if not waiting and before == self._everything():
                return
        raise AssertionError(f"not settled after {_MAX_ROUNDS} rounds; {self.conditions_of_all()}")

    async def resync(self) -> None:
        """Reconcile every key once more, as the operator does now and then."""
        self.look_at_all()
        await self.settle()

    def look_at_all(self) -> None:
        """Every key wants work, as when a pool is declared otherwise."""
        self.watch()
        for key in self._keys(None):
            self.add(key)

    async def wait(self, seconds: float) -> None:
        """Let time pass, then settle."""
        self.clock.advance(seconds)
        await self.settle()

    def step(self) -> None:
        """Every controller but the operator does one step."""
        self.api.now = self.clock.now()
        self.api.collect_garbage()
        run_deployments(self.api)
        run_leader_worker_sets(self.api, surges=self.groups_surge)
        run_jobs(self.api)
        schedule_pods(self.api)
        count_quotas(self.api)
        run_pods(self.api, self.behaviours, collects_orphans=self.collects_orphans)
        run_deployments(self.api)
        run_leader_worker_sets(self.api, surges=self.groups_surge)
        run_jobs(self.api)
        self.watch()

    # Administrators and kubelets

    @property
    def webhooks(self) -> list[Webhook]:
        """The admission webhooks that are registered."""
        return self.admission.webhooks

    def administer(self, body: Object) -> None:
        """An administrator applies a quota, a limit range, a namespace, an account or a claim."""
        self.api.put(ADMINISTERED[body["kind"]], body)
        count_quotas(self.api)

    def withdraw(self, body: Object) -> None:
        """An administrator deletes it again."""
        metadata = body["metadata"]
        self.api.remove(ADMINISTERED[body["kind"]], metadata.get("namespace"), metadata["name"])

    def fail_pods(self, owner: str, status: Object) -> None:
        """The kubelets end the pods of the object that have a node, and write this status."""
        self.api.now = self.clock.now()
        for pod in self.pods(owner):
            if pod["spec"].get("nodeName") and not has_finished(pod):
                place = pod["metadata"]["namespace"], pod["metadata"]["name"]
                self.api.set_status(PODS, *place, with_times(self.api, pod, status))

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
        """Nodes whose names begin so lose their heartbeat, or get it back."""
        for node in self._nodes(prefix):
            conditions = node["status"].get("conditions", [])
            others = [one for one in conditions if one["type"] != "Ready"]
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
        self.use(node, **{resource: gpus})

    def use(self, node: str, **requests: object) -> None:
        """A pod of somebody else holds resources of a node, as `cpu=190` or `memory="2000Gi"`."""
        quantities = {name: str(amount) for name, amount in requests.items()}
        resources = {"requests": quantities, "limits": quantities}
        self.api.put(
            PODS,
            {
                "metadata": {"name": f"other-{node}", "namespace": "other"},
                "spec": {
                    "nodeName": node,
                    "containers": [{"name": "x", "resources": resources}],
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
        key = key_of(name)
        body: Object = {"metadata": {"name": key.name, "namespace": key.namespace}, "spec": spec}
        with suppress(NotFoundError, KeyError):
            body["status"] = self.inference_deployment(name)["status"]
        self.api.now = self.clock.now()
        self.api.put(INFERENCE_DEPLOYMENTS, body)

    def delete(self, name: str) -> None:
        """What `kubectl delete` does; children stay until the garbage collector comes."""
        key = key_of(name)
        self.api.remove(INFERENCE_DEPLOYMENTS, key.namespace, key.name)

    # What is there

    def inference_deployment(self, name: str = "llama") -> Object:
        key = key_of(name)
        return self.api.object(INFERENCE_DEPLOYMENTS, key.namespace, key.name)

    def status(self, name: str = "llama") -> Object:
        status: Object = self.inference_deployment(name).get("status", {})
        return status

    def conditions(self, name: str = "llama") -> dict[str, tuple[str, str]]:
        """Status and reason by type."""
        conditions = self.status(name).get("conditions", [])
        return {one["type"]: (one["status"], one["reason"]) for one in conditions}

    def message(self, kind: str, name: str = "llama") -> str:
        """Message of one condition."""
        conditions = self.status(name)["conditions"]
        return str(next(one["message"] for one in conditions if one["type"] == kind))

    def candidate(self, pool: str, name: str = "llama") -> tuple[str, str, str]:
        """Verdict, reason and message of an object's candidate on a pool."""
        candidates = self.status(name)["candidates"]
        one = next(each for each in candidates if each["pool"] == pool)
        return one["verdict"], one["reason"], one["message"]

    def conditions_of_all(self) -> dict[str, dict[str, tuple[str, str]]]:
        metadata = [body["metadata"] for body in self.api.objects(INFERENCE_DEPLOYMENTS)]
        names = [_name_of(Key(each["namespace"], each["name"])) for each in metadata]
        return {name: self.conditions(name) for name in names}

    def deployments(self) -> list[str]:
        """Names of all Deployments."""
        return [body["metadata"]["name"] for body in self.api.objects(DEPLOYMENTS)]

    def deployment(self, name: str) -> Object:
        key = key_of(name)
        return self.api.object(DEPLOYMENTS, key.namespace, key.name)

    def pods(self, owner: str = "llama") -> list[Object]:
        key = key_of(owner)
        return [
            pod
            for pod in self.api.objects(PODS)
            if pod["metadata"]["namespace"] == key.namespace
            and pod["metadata"].get("labels", {}).get(LABEL_OWNER) == key.name
        ]

    # Inside

    async def _attempt(self, key: Key) -> None:
        """As the workers do: what may pass by itself is tried again, the rest waits."""
        try:
            await self.reconcile(_name_of(key))
        except Crash:
            self.start_operator()
        except (ConflictError, NotFoundError, TransientError) as error:
            self.errors.append(error)
            self.add(key)
        except ApiError as error:
            self.errors.append(error)

    def _wants_work(self, key: Key) -> bool:
        return self._due.get(key, inf) <= self.clock.seconds + _SOON_SECONDS

    def _note_freed_capacity(self) -> None:
        self._has_freed_capacity = True

    def _wake_waiting(self) -> None:
        """As the process does, a moment after the capacity was freed: who waits then is woken."""
        if self._has_freed_capacity:
            self._has_freed_capacity = False
            for key in self.fleet.waiting_keys():
                self.add(key)

    def _wake_lapsed(self) -> None:
        for key in self.migration_lock.lapsed(self.fleet.view().pools()):
            self.add(key)

    def _keys(self, order: Iterable[str] | None) -> list[Key]:
        """Every key that is known, so that a deletion is noticed too."""
        owners = {Key(*owner) for owner in self.stores.owners()}
        keys = sorted(owners | {*self._due, *self.fleet.known_keys()})
        return keys if order is None else [key for key in map(key_of, order) if key in keys]

    def _everything(self) -> object:
        kinds = (
            *(INFERENCE_DEPLOYMENTS, DEPLOYMENTS, LEADER_WORKER_SETS, SERVICES, PODS, NODES),
            *(INFERENCE_POOLS, POD_DISRUPTION_BUDGETS, JOBS),
        )
        return [self.api.versions(kind) for kind in kinds]

    def _nodes(self, prefix: str) -> list[Object]:
        nodes = self.api.objects(NODES)
        return [node for node in nodes if node["metadata"]["name"].startswith(prefix)]


async def _no_answer(question: LoadQuery) -> None:
    """No load is known."""


def write_count(api: FakeApi, kinds: Iterable[Kind] = (*WORKLOAD_KINDS, SERVICES)) -> int:
    """Writes of the operator that changed an object of these kinds."""
    return sum(1 for call in api.effective_writes() if call.kind in tuple(kinds))


def _as_read(kind: Kind, body: Object) -> Object:
    """What the operator reads of an object that a watch sends."""
    parser = _PARSERS.get(kind)
    if parser is None:
        return body
    return parser.event(json.dumps({"type": "MODIFIED", "object": body}).encode()).object
