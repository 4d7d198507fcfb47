"""All parts of the operator, built and connected; nothing runs yet."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.config_map import AioConfigMapApi, ConfigMapApi
from tonnage.kube.connection import Connection
from tonnage.kube.events import EventRecorder
from tonnage.kube.lease import LeaderElector
from tonnage.kube.protocol import KubeApi
from tonnage.kube.rights import RightsBook
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport
from tonnage.reconcile.key import Key
from tonnage.runtime.controller import Controller
from tonnage.runtime.correction_store import CONFIG_MAP, CorrectionStore
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.health import Health
from tonnage.runtime.registry import Metrics
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.runtime.settings import Settings, process_identity
from tonnage.runtime.status_book import StatusBook
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.lists import seen_specs
from tonnage.watch.missed_changes import MissedChanges
from tonnage.watch.router import EventRouter
from tonnage.watch.scope import Scope
from tonnage.watch.work import BuildWork, Surroundings, Work

LEASE_NAME: Final = "tonnage"

RETRIES_PER_SECOND: Final = 20.0
RETRY_BURST: Final = 100
"""Retries of all keys together, so that an outage does not end in a storm."""

EVENTS_PER_SECOND: Final = 1 / 300
EVENT_BURST: Final = 25
"""Of each object; those of client-go's spam filter (client-go tools/record/events_cache.go)."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What one part tells another: `relist` to list anew, `changed` and `room` of the fleet."""

    relist: asyncio.Event
    changed: asyncio.Event
    room: asyncio.Event


@dataclass(frozen=True, slots=True)
class Parts:
    """The operator, at rest."""

    settings: Settings
    connection: Connection
    scope: Scope
    api: KubeApi
    rights: RightsBook
    elector: LeaderElector
    fleet: FleetState
    signs: Signs
    queue: WorkQueue[Key]
    controller: Controller
    router: EventRouter
    specs: SeenObjects[int]
    missed: MissedChanges
    work: Work
    corrections: CorrectionStore
    health: Health
    metrics: Metrics


def assemble(
    settings: Settings, connection: Connection, build_work: BuildWork, scope: Scope
) -> Parts:
    """Build every part from the settings."""
    catalog = load_catalog()
    signs = Signs(asyncio.Event(), asyncio.Event(), asyncio.Event())
    fleet = FleetState(catalog, on_change=signs.changed.set, on_room=signs.room.set)
    book = StatusBook(frozenset(catalog.accelerators))
    rights = RightsBook()
    metrics = Metrics(book, fleet.view, rights)
    identity = process_identity()
    transport = Transport(connection.client, metrics.api.requested, rights)
    elector = LeaderElector(
        AioLeaseApi(transport), namespace=settings.namespace, name=LEASE_NAME, identity=identity
    )
    bucket = TokenBucket(settings.kube_api_qps, settings.kube_api_burst)
    api = scope.limit(AioKubeApi(transport, before_write=elector.check, bucket=bucket))
    queue: WorkQueue[Key] = WorkQueue(
        metrics.queue, retries=TokenBucket(RETRIES_PER_SECOND, RETRY_BURST)
    )
    events = _record_events(api, identity)
    config_map = AioConfigMapApi(transport, settings.namespace, CONFIG_MAP, elector.check)
    corrections = _keep_corrections(config_map, events, catalog, metrics)
    asked = metrics.prometheus.asked
    work = build_work(Surroundings(api, fleet, events, book, queue.add, asked, corrections))
    controller = Controller(
        work.reconcile,
        queue,
        metrics.reconciles,
        workers=settings.workers,
        deadline_seconds=settings.reconcile_deadline_seconds,
    )
    metrics.queue.watch_depth(lambda: queue.depth)
    metrics.workers.watch(settings.workers, controller.in_flight_seconds, elector.is_leading)
    health = Health(
        oldest_in_flight=controller.oldest_in_flight_seconds,
        max_in_flight_seconds=2 * settings.reconcile_deadline_seconds,
    )
    specs = seen_specs(queue.add)
    router = EventRouter(queue.add, fleet, specs, signs.relist, metrics.api)
    missed = MissedChanges(fleet, specs, scope.watched, metrics.api.changes_missed)
    return Parts(
        settings,
        connection,
        scope,
        api,
        rights,
        elector,
        fleet,
        signs,
        queue,
        controller,
        router,
        specs,
        missed,
        work,
        corrections,
        health,
        metrics,
    )


def _keep_corrections(
    config_map: ConfigMapApi, events: EventRecorder, catalog: Catalog, metrics: Metrics
) -> CorrectionStore:
    corrections = CorrectionStore(config_map, events, frozenset(catalog.accelerators))
    metrics.corrections.watch(corrections)
    return corrections


def _record_events(api: KubeApi, identity: str) -> EventRecorder:
    return EventRecorder(
        api,
        identity=identity,
        new_bucket=lambda: TokenBucket(EVENTS_PER_SECOND, EVENT_BURST),
        now=lambda: datetime.now(UTC),
    )
