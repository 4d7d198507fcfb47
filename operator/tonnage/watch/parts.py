"""All parts of the operator, built and connected; nothing runs yet."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Final

from tonnage.api.shard import Shard
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.load import load_catalog
from tonnage.kube.client import AioKubeApi, AioLeaseApi
from tonnage.kube.config_map import AioConfigMapApi
from tonnage.kube.connection import Connection
from tonnage.kube.events import EventRecorder
from tonnage.kube.gathering import Gathering
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS
from tonnage.kube.lease import LeaderElector
from tonnage.kube.outbox import Outbox
from tonnage.kube.protocol import KubeApi
from tonnage.kube.rights import RightsBook
from tonnage.kube.throttle import TokenBucket
from tonnage.kube.transport import Transport
from tonnage.kube.watching import WatchApi
from tonnage.reconcile.key import Key, Requeue
from tonnage.reconcile.looks import Looks
from tonnage.reconcile.newborns import Newborns
from tonnage.runtime.controller import Controller
from tonnage.runtime.correction_store import CONFIG_MAP, CorrectionStore
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.health import Health
from tonnage.runtime.priority import WorkerShares
from tonnage.runtime.registry import Metrics
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.runtime.settings import Settings, process_identity
from tonnage.runtime.status_book import StatusBook
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.echoes import Echoes, ExpectingKubeApi, told_whose
from tonnage.watch.follower import Follower
from tonnage.watch.lists import seen_specs
from tonnage.watch.missed_changes import MissedChanges
from tonnage.watch.resting import RestingObjects
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


LOSS_SETTLE_SECONDS: Final = 0.3
"""Nodes are often lost several at a time; who has lost any is looked at once they are all known."""


@dataclass(frozen=True, slots=True)
class Signs:
    """What one part tells another: to list anew the fleet (`relist`) or all else (`resync`), and
    what became of the fleet (`changed` and `room`)."""

    relist: asyncio.Event
    resync: asyncio.Event
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
    followers: tuple[Follower, ...]
    specs: SeenObjects[int]
    looks: Looks
    resting: RestingObjects
    missed: MissedChanges
    work: Work
    outbox: Outbox
    corrections: CorrectionStore
    health: Health
    metrics: Metrics


def assemble(
    settings: Settings, connection: Connection, build_work: BuildWork, scope: Scope
) -> Parts:
    """Build every part from the settings."""
    catalog = load_catalog()
    signs = Signs(asyncio.Event(), asyncio.Event(), asyncio.Event(), asyncio.Event())
    fleet = FleetState(
        catalog,
        on_change=signs.changed.set,
        on_room=signs.room.set,
        on_loss=lambda key: queue.add_after(key, LOSS_SETTLE_SECONDS),
        shard=scope.shard,
    )
    book = StatusBook(frozenset(catalog.accelerators))
    looks, newborns = Looks(_now), Newborns()
    rights = RightsBook(on_denial=looks.forget_all)
    metrics = Metrics(book, fleet.view, rights)
    identity = process_identity()
    transport = Transport(connection.client, metrics.api.requested, rights)
    elector = _elector(transport, settings, scope, identity)
    queue = _queue(settings, metrics)
    echoes = Echoes(_look_again(looks, queue))
    api = ExpectingKubeApi(_reach(transport, settings, scope, elector), echoes)
    outbox = Outbox(api.create_event)
    events = _record_events(outbox, identity)
    corrections = _keep_corrections(transport, settings, elector, events, catalog, metrics)
    asked = metrics.prometheus.asked
    work = build_work(
        Surroundings(api, fleet, events, book, queue.add, asked, corrections, looks, newborns)
    )
    gathering = Gathering()
    controller = _control(settings, work, queue, metrics, elector, gathering)
    specs = seen_specs(queue.add)
    _tell_memory(metrics, fleet, specs)
    router = EventRouter(
        queue, looks, echoes, newborns, fleet, specs, signs.relist, signs.resync, metrics.api
    )
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
        _follow(scope, WatchApi(transport, gathering), router),
        specs,
        looks,
        RestingObjects(looks, fleet, corrections.known),
        MissedChanges(fleet, specs, scope.watched, metrics.api.changes_missed),
        work,
        outbox,
        corrections,
        _health(settings, controller),
        metrics,
    )


def _elector(
    transport: Transport, settings: Settings, scope: Scope, identity: str
) -> LeaderElector:
    name = lease_name(scope.shard)
    return LeaderElector(
        AioLeaseApi(transport), namespace=settings.namespace, name=name, identity=identity
    )


def _reach(
    transport: Transport, settings: Settings, scope: Scope, elector: LeaderElector
) -> KubeApi:
    """The API server as far as it is looked at."""
    bucket = TokenBucket(settings.kube_api_qps, settings.kube_api_burst)
    return scope.limit(AioKubeApi(transport, before_write=elector.check, bucket=bucket))


def _look_again(looks: Looks, queue: WorkQueue[Key]) -> Callable[[Key], None]:
    """Live, whatever was read before."""

    def look_again(key: Key) -> None:
        looks.forget(key)
        queue.add(key)

    return look_again


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


def _follow(scope: Scope, api: WatchApi, router: EventRouter) -> tuple[Follower, ...]:
    return tuple(Follower(api, each, router.route, router.begun_anew) for each in scope.followed)


def _control(
    settings: Settings,
    work: Work,
    queue: WorkQueue[Key],
    metrics: Metrics,
    elector: LeaderElector,
    gathering: Gathering,
) -> Controller:
    async def reconcile(key: Key) -> Requeue:
        await gathering.attend()
        return await work.reconcile(key)

    controller = Controller(
        told_whose(reconcile),
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


def _tell_memory(metrics: Metrics, fleet: FleetState, specs: SeenObjects[int]) -> None:
    counts = fleet.counts() | {INFERENCE_DEPLOYMENTS: specs.__len__}
    metrics.memory.watch(
        lambda: len(asyncio.all_tasks()), {kind.plural: count for kind, count in counts.items()}
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
