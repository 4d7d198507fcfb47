"""All parts of the operator, built and connected; nothing runs yet."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from tonnage.catalog.load import load_catalog
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.connection import Connection
from tonnage.kube.events import EventRecorder
from tonnage.kube.lease import LeaderElector
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport
from tonnage.reconcile.key import Key
from tonnage.runtime.controller import Controller
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.health import Health
from tonnage.runtime.metrics import ApiMetrics, QueueMetrics, ReconcileMetrics
from tonnage.runtime.settings import Settings, process_identity
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.router import EventRouter
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
    api: AioKubeApi
    elector: LeaderElector
    fleet: FleetState
    signs: Signs
    queue: WorkQueue[Key]
    controller: Controller
    router: EventRouter
    work: Work
    health: Health
    registry: CollectorRegistry


def assemble(settings: Settings, connection: Connection, build_work: BuildWork) -> Parts:
    """Build every part from the settings."""
    # Without it each counter has a second series, which nobody reads.
    disable_created_metrics()  # type: ignore[no-untyped-call]  # the library gives it no type
    registry = CollectorRegistry()
    for collector in (GCCollector, PlatformCollector, ProcessCollector):
        collector(registry=registry)
    waiting, working, asking = (
        QueueMetrics(registry),
        ReconcileMetrics(registry),
        ApiMetrics(registry),
    )
    identity = process_identity()
    transport = Transport(connection.client, asking.requested)
    elector = LeaderElector(
        AioLeaseApi(transport), namespace=settings.namespace, name=LEASE_NAME, identity=identity
    )
    api = AioKubeApi(
        transport,
        before_write=elector.check,
        bucket=TokenBucket(settings.kube_api_qps, settings.kube_api_burst),
    )
    signs = Signs(asyncio.Event(), asyncio.Event(), asyncio.Event())
    fleet = FleetState(load_catalog(), on_change=signs.changed.set, on_room=signs.room.set)
    queue: WorkQueue[Key] = WorkQueue(waiting, retries=TokenBucket(RETRIES_PER_SECOND, RETRY_BURST))
    events = EventRecorder(
        api,
        identity=identity,
        new_bucket=lambda: TokenBucket(EVENTS_PER_SECOND, EVENT_BURST),
        now=lambda: datetime.now(UTC),
    )
    work = build_work(Surroundings(api, fleet, events, queue.add))
    controller = Controller(
        work.reconcile,
        queue,
        working,
        workers=settings.workers,
        deadline_seconds=settings.reconcile_deadline_seconds,
    )
    waiting.watch_depth(lambda: queue.depth)
    working.watch_leadership(elector.is_leading)
    health = Health(
        oldest_in_flight=controller.oldest_in_flight_seconds,
        max_in_flight_seconds=2 * settings.reconcile_deadline_seconds,
    )
    router = EventRouter(queue.add, fleet, signs.relist, asking)
    return Parts(
        settings,
        connection,
        api,
        elector,
        fleet,
        signs,
        queue,
        controller,
        router,
        work,
        health,
        registry,
    )
