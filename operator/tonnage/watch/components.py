"""All components of the operator, built and connected; nothing runs yet."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final

from tonnage import delays
from tonnage.api.shard import Shard
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.informers.reflector import Reflector
from tonnage.informers.resync import Resync
from tonnage.informers.stores import Stores
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.config_map import AioConfigMapApi
from tonnage.kube.connection import Connection
from tonnage.kube.events import EventRecorder
from tonnage.kube.kinds import DEPLOYMENTS, PODS, SERVICES
from tonnage.kube.lease import LeaderElector
from tonnage.kube.outbox import Outbox
from tonnage.kube.protocol import KubeApi, ListWatch, Parts, Selection
from tonnage.kube.rights import Right, RightsBook
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport
from tonnage.reconcile.key import Key, Requeue
from tonnage.runtime.controller import Controller
from tonnage.runtime.correction_store import CONFIG_MAP, CorrectionStore
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.health import Health
from tonnage.runtime.priority import WorkerShares
from tonnage.runtime.registry import Metrics
from tonnage.runtime.settings import Settings, process_identity
from tonnage.runtime.status_book import StatusBook
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.scope import PARTS, Scope
from tonnage.watch.triggers import Triggers
from tonnage.watch.work import BuildWork, LoopDependencies, Work

LEASE_NAME: Final = "tonnage"

RETRIES_PER_SECOND: Final = 20.0
RETRY_BURST: Final = 100
"""Retries of all keys together, so that an outage does not end in a storm."""

EVENTS_PER_SECOND: Final = 1 / 300
EVENT_BURST: Final = 25
"""Of each object; those of client-go's spam filter (client-go tools/record/events_cache.go)."""

_CHILDREN: Final = frozenset({DEPLOYMENTS, SERVICES, PODS})


@dataclass(frozen=True, slots=True)
class Signals:
    """What one task tells another: that kopf has listed a kind (`listed`), that all keys are to be
    reconciled (`resync`), and what became of the fleet (`changed` and `room`)."""

    listed: asyncio.Event
    resync: asyncio.Event
    changed: asyncio.Event
    room: asyncio.Event


@dataclass(frozen=True, slots=True)
class KubeAccess:
    """The way to the API server."""

    connection: Connection
    api: KubeApi
    rights: RightsBook
    elector: LeaderElector
    outbox: Outbox


@dataclass(frozen=True, slots=True)
class Informers:
    """The stores, and what keeps them true: kopf brings the events of some kinds, reflectors those
    of all others; all kinds are listed by reflectors."""

    stores: Stores
    by_kopf: tuple[Reflector, ...]
    by_watch: tuple[Reflector, ...]
    resync: Resync

    @property
    def reflectors(self) -> tuple[Reflector, ...]:
        """All of them."""
        return (*self.by_kopf, *self.by_watch)

    def missing_right(self) -> Right | None:
        """The right that is missing to know what runs; None where none is."""
        denied = (each.denied for each in self.reflectors if each.selection.kind in _CHILDREN)
        return next((right for right in denied if right is not None), None)


@dataclass(frozen=True, slots=True)
class Loop:
    """What works while this process leads."""

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


def assemble(
    settings: Settings, connection: Connection, build_work: BuildWork, scope: Scope
) -> Components:
    """Build every component from the settings."""
    catalog = load_catalog()
    signals = Signals(asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event())
    fleet = FleetState(
        catalog,
        on_change=signals.changed.set,
        on_room=signals.room.set,
        on_loss=lambda key: queue.add_after(key, delays.LOSS_BATCH),
        shard=scope.shard,
    )
    book, rights = StatusBook(frozenset(catalog.accelerators)), RightsBook()
    metrics = Metrics(book, fleet.view, rights)
    identity = process_identity()
    transport = Transport(connection.client, metrics.api.requested, rights)
    elector = _elector(transport, settings, scope, identity)
    queue = _queue(settings, metrics)
    bucket = TokenBucket(settings.kube_api_qps, settings.kube_api_burst)
    api = AioKubeApi(transport, before_write=elector.check, bucket=bucket)
    outbox = Outbox(api.create_event)
    events = _record_events(outbox, identity)
    corrections = _keep_corrections(transport, settings, elector, events, catalog, metrics)
    triggers = Triggers(queue, fleet, lambda: sorted(fleet.known_keys()))
    informers = _inform(
        api,
        scope,
        triggers,
        Observer(metrics, signals.resync),
        Resync(lambda: (fleet.changes, corrections.known(), informers.missing_right())),
    )
    work = build_work(
        LoopDependencies(
            api=api,
            stores=informers.stores,
            missing_right=informers.missing_right,
            fleet=fleet,
            events=events,
            metrics=metrics,
            book=book,
            wake=queue.add,
            lessons=corrections,
        )
    )
    controller = _control(settings, work, queue, metrics, elector, informers.resync)
    _tell_memory(metrics, informers.stores)
    return Components(
        settings,
        scope,
        KubeAccess(connection, api, rights, elector, outbox),
        informers,
        Loop(fleet, queue, controller, work, corrections),
        signals,
        _health(settings, controller),
        metrics,
    )


class Observer:
    """What reflectors see, as metrics; where a right to list comes or goes, every object is
    reconciled, for its state becomes unknown or known."""

    def __init__(self, metrics: Metrics, resync: asyncio.Event) -> None:
        self._metrics = metrics
        self._resync = resync

    def event_seen(self, plural: str) -> None:
        """A watch brought an event of this kind."""
        self._metrics.api.event_seen(plural)

    def list_denied(self, selection: Selection) -> None:
        """The operator may not list this any more, or may again."""
        if selection.kind in _CHILDREN:
            self._resync.set()


def lease_name(shard: Shard) -> str:
    """The Lease of the replicas that work for a shard; those of another never wait for it."""
    return LEASE_NAME if shard.name is None else f"{LEASE_NAME}-{shard.name}"


def _queue(settings: Settings, metrics: Metrics) -> WorkQueue[Key]:
    return WorkQueue(
        metrics.queue,
        retries=TokenBucket(RETRIES_PER_SECOND, RETRY_BURST),
        shares=WorkerShares.among(settings.workers),
        namespace_of=attrgetter("namespace"),
    )


def _inform(
    api: ListWatch, scope: Scope, triggers: Triggers, observer: Observer, resync: Resync
) -> Informers:
    stores = Stores(triggers.on_change, _clock)
    reflectors = [
        Reflector(
            api,
            selection,
            PARTS.get(selection.kind, Parts.FULL),
            stores.of(selection.kind),
            observer,
        )
        for selection in scope.selections()
    ]
    kopf_kinds = scope.watched_by_kopf
    return Informers(
        stores,
        tuple(each for each in reflectors if each.selection.kind in kopf_kinds),
        tuple(each for each in reflectors if each.selection.kind not in kopf_kinds),
        resync,
    )


def _elector(
    transport: Transport, settings: Settings, scope: Scope, identity: str
) -> LeaderElector:
    name = lease_name(scope.shard)
    return LeaderElector(
        AioLeaseApi(transport), namespace=settings.namespace, name=name, identity=identity
    )


def _control(
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


def _health(settings: Settings, controller: Controller) -> Health:
    return Health(
        oldest_in_flight=controller.oldest_in_flight_seconds,
        max_in_flight_seconds=2 * settings.reconcile_deadline_seconds,
    )


def _tell_memory(metrics: Metrics, stores: Stores) -> None:
    metrics.memory.watch(
        lambda: len(asyncio.all_tasks()),
        {kind.plural: stores.of(kind).__len__ for kind in stores.kinds},
    )


def _keep_corrections(
    transport: Transport,
    settings: Settings,
    elector: LeaderElector,
    events: EventRecorder,
    catalog: Catalog,
    metrics: Metrics,
) -> CorrectionStore:
    config_map = AioConfigMapApi(transport, settings.namespace, CONFIG_MAP, elector.check)
    corrections = CorrectionStore(config_map, events, frozenset(catalog.accelerators))
    metrics.corrections.watch(corrections)
    return corrections


def _record_events(outbox: Outbox, identity: str) -> EventRecorder:
    return EventRecorder(
        outbox,
        identity=identity,
        new_bucket=lambda: TokenBucket(EVENTS_PER_SECOND, EVENT_BURST),
        now=_now,
    )


def _now() -> datetime:
    return datetime.now(UTC)


def _clock() -> float:
    return time.monotonic()
