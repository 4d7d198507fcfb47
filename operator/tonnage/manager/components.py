"""All components of the operator, built and connected; nothing runs yet."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final

from tonnage import delays
from tonnage.api.names import CORRECTIONS_CONFIG_MAP
from tonnage.api.shard import Shard
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.controller.correction_store import CorrectionStore
from tonnage.controller.health import Health
from tonnage.controller.metrics.components import CorrectionsCollector
from tonnage.controller.metrics.registry import Metrics
from tonnage.controller.metrics.statuses import StatusMetrics
from tonnage.controller.metrics_access import MetricsAccess
from tonnage.controller.queueing.priority import WorkerShares
from tonnage.controller.queueing.workqueue import WorkQueue
from tonnage.controller.settings import Settings, process_identity
from tonnage.controller.workers import Controller
from tonnage.fleet.fleet import Fleet
from tonnage.informers.reflector import Reflector
from tonnage.informers.restarts import Restarts
from tonnage.informers.resync import Resync
from tonnage.informers.stores import Stores
from tonnage.kube.access_review import AioAccessReviewer
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.connection import Connection
from tonnage.kube.events import EventRecorder
from tonnage.kube.kinds import (
    COMPUTE_DOMAINS,
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SERVICES,
)
from tonnage.kube.lease import LeaderElector
from tonnage.kube.protocol import Kind, KubeApi, ListWatch, ObjectParts, Selection
from tonnage.kube.rights import PermissionTracker, Right
from tonnage.kube.single_fields import ConfigMapEntries
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport
from tonnage.manager.scope import OPTIONAL, PARTS, Scope
from tonnage.manager.triggers import Triggers
from tonnage.manager.work import BuildWork, LoopDependencies, Work
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key, Requeue
from tonnage.workloads.registry import is_in_group

LEASE_NAME: Final = "tonnage"

RETRIES_PER_SECOND: Final = 20.0
RETRY_BURST: Final = 100
"""Retries of all keys together, so that an outage does not cause a storm of retries."""

EVENTS_PER_SECOND: Final = 1 / 300
EVENT_BURST: Final = 25
"""Per object, as in client-go's spam filter (client-go tools/record/events_cache.go)."""

_MAX_LIST_BYTES: Final = 32 * 1024 * 1024
"""Longest list that a reconcile keeps, such as the pods of a Job: users may give its label to any
number of pods."""

_CHILDREN: Final = frozenset({DEPLOYMENTS, SERVICES, PODS})

_PLANNED_WITH: Final = (POD_DISRUPTION_BUDGETS, LEADER_WORKER_SETS, COMPUTE_DOMAINS)
"""Kinds of which a plan depends on whether the operator can use them."""


@dataclass(frozen=True, slots=True)
class Signals:
    """Signals between tasks: kopf has listed a kind (`listed`), all keys must be reconciled
    (`resync`), the fleet has changed (`changed`), GPUs may be free (`capacity_freed`)."""

    listed: asyncio.Event
    resync: asyncio.Event
    changed: asyncio.Event
    capacity_freed: asyncio.Event


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """The connection to the API server, and what uses it."""

    connection: Connection
    api: KubeApi
    rights: PermissionTracker
    elector: LeaderElector
    events: EventRecorder


@dataclass(frozen=True, slots=True)
class Informers:
    """The stores and their reflectors. kopf delivers the events of some kinds, reflectors those of
    all others; reflectors list all kinds."""

    stores: Stores
    by_kopf: tuple[Reflector, ...]
    by_watch: tuple[Reflector, ...]
    resync: Resync

    @property
    def reflectors(self) -> tuple[Reflector, ...]:
        """The reflectors of all kinds."""
        return (*self.by_kopf, *self.by_watch)

    def missing_right(self, key: Key) -> Right | None:
        """The permission that the operator lacks to know the state of an object's replicas; None if
        none. LeaderWorkerSets matter to an object that has one, or pods of one."""
        for reflector in self.reflectors:
            kind = reflector.selection.kind
            if reflector.denied is not None and (
                kind in _CHILDREN or (kind == LEADER_WORKER_SETS and self._has_groups(key))
            ):
                return reflector.denied
        return None

    def _has_groups(self, key: Key) -> bool:
        """Whether the object has a LeaderWorkerSet. Where the operator never listed them, pods of a
        group show that there is one."""
        if self.stores.owned(LEADER_WORKER_SETS, key):
            return True
        pods = self.stores.owned(PODS, key)
        return any(is_in_group(pod["metadata"].get("labels") or {}) for pod in pods)

    def permissions(self) -> tuple[tuple[Right | None, ...], tuple[bool, ...]]:
        """What a plan may rest on, of the kinds that the operator may be denied or that the cluster
        may lack."""
        denied = tuple(reflector.denied for reflector in self.reflectors)
        return denied, tuple(map(self.has_kind, _PLANNED_WITH))

    def has_kind(self, kind: Kind) -> bool:
        """Whether the cluster has the kind, and the store its objects in all namespaces that are
        served; False where the operator may not list it."""
        of_kind = [one for one in self.by_watch if one.selection.kind == kind]
        return bool(of_kind) and all(reflector.is_listed for reflector in of_kind)


@dataclass(frozen=True, slots=True)
class Loop:
    """What runs while this process leads."""

    fleet: FleetState
    queue: WorkQueue[Key]
    controller: Controller
    work: Work
    corrections: CorrectionStore


@dataclass(frozen=True, slots=True)
class Components:
    """The operator, before it starts."""

    settings: Settings
    scope: Scope
    kube: KubeAccess
    informers: Informers
    loop: Loop
    signals: Signals
    health: Health
    metrics: Metrics
    metrics_access: MetricsAccess | None


def assemble(
    settings: Settings, connection: Connection, build_work: BuildWork, scope: Scope
) -> Components:
    """Build and connect all components."""
    catalog = load_catalog()
    signals = Signals(asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event())
    fleet = FleetState(
        Fleet(catalog, scope.shard),
        on_change=signals.changed.set,
        on_capacity_freed=signals.capacity_freed.set,
        on_loss=lambda key: queue.add_after(key, delays.LOSS_BATCH),
    )
    status_metrics, rights = StatusMetrics(frozenset(catalog.accelerators)), PermissionTracker()
    metrics = Metrics(status_metrics, fleet.view, rights)
    identity = process_identity()
    transport = Transport(connection.client, metrics.api.requested, rights)
    elector = _build_elector(transport, settings, scope, identity)
    queue = _build_queue(settings, metrics)
    api = _build_api(transport, settings, elector)
    events = _build_event_recorder(api, identity)
    corrections = _build_correction_store(transport, settings, elector, events, catalog, metrics)
    informers = _build_informers(
        api,
        scope,
        Triggers(queue, fleet),
        Observer(metrics, signals.resync),
        Resync(lambda: (fleet.changes, corrections.known(), informers.permissions())),
    )
    work = build_work(
        LoopDependencies(
            settings=settings,
            scope=scope,
            api=api,
            stores=informers.stores,
            missing_right=informers.missing_right,
            has_kind=informers.has_kind,
            fleet=fleet,
            events=events,
            metrics=metrics,
            status_metrics=status_metrics,
            wake=queue.add,
            corrections=corrections,
            is_leading=elector.is_leading,
        )
    )
    controller = _build_controller(settings, work, queue, metrics, elector, informers.resync)
    _register_memory_metrics(metrics, informers.stores)
    return Components(
        settings,
        scope,
        KubeAccess(connection, api, rights, elector, events),
        informers,
        Loop(fleet, queue, controller, work, corrections),
        signals,
        _build_health(settings, controller),
        metrics,
        _build_metrics_access(settings, transport),
    )


class Observer:
    """Observes the reflectors: counts events, and requests a resync when a permission to list is
    denied or granted, or a kind comes or goes, because the state of every object becomes unknown or
    known."""

    def __init__(self, metrics: Metrics, resync: asyncio.Event) -> None:
        self._metrics = metrics
        self._resync = resync

    def on_event(self, plural: str) -> None:
        """Count a watch event of this kind."""
        self._metrics.api.on_event(plural)

    def on_availability(self, selection: Selection) -> None:
        """Request a resync: these objects can be listed no more, or again."""
        if selection.kind in (*_CHILDREN, *OPTIONAL):
            self._resync.set()


def lease_name(shard: Shard) -> str:
    """The name of the Lease for which the operator's replicas of one shard compete."""
    return LEASE_NAME if shard.name is None else f"{LEASE_NAME}-{shard.name}"


def _build_queue(settings: Settings, metrics: Metrics) -> WorkQueue[Key]:
    return WorkQueue(
        metrics.queue,
        retries=TokenBucket(RETRIES_PER_SECOND, RETRY_BURST),
        shares=WorkerShares.among(settings.workers),
        namespace_of=attrgetter("namespace"),
    )


def _build_informers(
    api: ListWatch, scope: Scope, triggers: Triggers, observer: Observer, resync: Resync
) -> Informers:
    stores, restarts = Stores(triggers.on_change, _clock), Restarts()
    reflectors = [
        Reflector(
            api,
            selection,
            PARTS.get(selection.kind, ObjectParts.FULL),
            stores.store_for(selection.kind),
            observer,
            restarts,
        )
        for selection in scope.selections()
    ]
    kopf_kinds = scope.watched_by_kopf
    return Informers(
        stores,
        tuple(reflector for reflector in reflectors if reflector.selection.kind in kopf_kinds),
        tuple(reflector for reflector in reflectors if reflector.selection.kind not in kopf_kinds),
        resync,
    )


def _build_elector(
    transport: Transport, settings: Settings, scope: Scope, identity: str
) -> LeaderElector:
    name = lease_name(scope.shard)
    return LeaderElector(
        AioLeaseApi(transport), namespace=settings.namespace, name=name, identity=identity
    )


def _build_api(transport: Transport, settings: Settings, elector: LeaderElector) -> AioKubeApi:
    bucket = TokenBucket(settings.kube_api_qps, settings.kube_api_burst)
    return AioKubeApi(
        transport, before_write=elector.check, bucket=bucket, max_list_bytes=_MAX_LIST_BYTES
    )


def _build_controller(
    settings: Settings,
    work: Work,
    queue: WorkQueue[Key],
    metrics: Metrics,
    elector: LeaderElector,
    resync: Resync,
) -> Controller:
    async def reconcile(key: Key) -> Requeue:
        circumstances = resync.circumstances()
        requeue = await work.reconcile(key)
        resync.note_planned(key, circumstances)
        return requeue

    controller = Controller(
        reconcile,
        queue,
        metrics.reconciles,
        workers=settings.workers,
        deadline_seconds=settings.reconcile_deadline_seconds,
    )
    metrics.queue.watch_depth(lambda: queue.depth)
    metrics.workers.watch(settings.workers, controller.in_flight_seconds, elector.is_leading)
    return controller


def _build_health(settings: Settings, controller: Controller) -> Health:
    return Health(
        oldest_in_flight=controller.oldest_in_flight_seconds,
        max_in_flight_seconds=2 * settings.reconcile_deadline_seconds,
    )


def _build_metrics_access(settings: Settings, transport: Transport) -> MetricsAccess | None:
    """None where every caller may read /metrics."""
    if settings.metrics_auth == "none":
        return None
    return MetricsAccess(AioAccessReviewer(transport).review)


def _register_memory_metrics(metrics: Metrics, stores: Stores) -> None:
    metrics.memory.watch(
        lambda: len(asyncio.all_tasks()),
        {kind.plural: stores.store_for(kind).__len__ for kind in stores.kinds},
    )


def _build_correction_store(
    transport: Transport,
    settings: Settings,
    elector: LeaderElector,
    events: EventRecorder,
    catalog: Catalog,
    metrics: Metrics,
) -> CorrectionStore:
    config_map = ConfigMapEntries(
        transport, settings.namespace, CORRECTIONS_CONFIG_MAP, elector.check
    )
    corrections = CorrectionStore(config_map, events.record, frozenset(catalog.accelerators))
    metrics.registry.register(CorrectionsCollector(corrections))
    return corrections


def _build_event_recorder(api: KubeApi, identity: str) -> EventRecorder:
    return EventRecorder(
        api.create_event,
        identity=identity,
        new_bucket=lambda: TokenBucket(EVENTS_PER_SECOND, EVENT_BURST),
        now=_now,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _clock() -> float:
    return time.monotonic()
