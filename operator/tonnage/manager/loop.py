"""Builds the reconcile loop from the packages below and the process' components."""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.hub.errors import ADAPTER_INPUTS
from tonnage.checkpoint.hub.reader import HubSettings, fetch_adapter, fetch_checkpoint
from tonnage.checkpoint.lookup import HubLookup
from tonnage.controller.download_reader import DownloadReader
from tonnage.controller.fact_reader import FactReader
from tonnage.controller.hub_cache import HubModelCache
from tonnage.controller.pod_report_cache import PodReportCache
from tonnage.controller.settings import Settings
from tonnage.controller.start_reader import StartReader
from tonnage.engines.inputs import PRIVILEGED, RenderSettings
from tonnage.kube.kinds import INFERENCE_DEPLOYMENTS, PRIORITY_CLASSES
from tonnage.kube.protocol import KubeApi, Object
from tonnage.manager.scope import Scope
from tonnage.manager.work import LoopDependencies, Work
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.integrations.accelerator_pools import PoolReporter
from tonnage.reconcile.key import Key, Wake
from tonnage.reconcile.observation.pods.lost_nodes import has_every_node
from tonnage.reconcile.observation.priority import Priorities
from tonnage.reconcile.observation.volumes import VolumeReader, require_nothing
from tonnage.reconcile.observe import Measure, Sources
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.rebuild import rebuild_state as rebuild_planning
from tonnage.reconcile.reconciler import Reconciler
from tonnage.reconcile.scheduling.context import Dependencies
from tonnage.reconcile.scheduling.migration_lock import MigrationLock
from tonnage.telemetry.access import Access
from tonnage.telemetry.cache import measure_caches
from tonnage.telemetry.load import measure_load
from tonnage.telemetry.pod_adapters import PodAdapters
from tonnage.telemetry.pod_metrics import PodMetrics
from tonnage.telemetry.prometheus import PrometheusSource, QueryOutcome
from tonnage.telemetry.series import Query, no_prometheus


def build_loop(dependencies: LoopDependencies) -> Work:
    """Build the work of one operator process."""
    catalog, settings, scope = load_catalog(), dependencies.settings, dependencies.scope
    fleet, stores = dependencies.fleet, dependencies.stores
    migration_lock = MigrationLock(dependencies.wake)
    interval = settings.scaling_interval_seconds
    rendering = RenderSettings(
        settings.hf_endpoint,
        settings.registry_mirrors or (),
        privileged_pools=settings.pool_pod_security == PRIVILEGED,
    )
    planner_dependencies = Dependencies(catalog, rendering, scaling_interval_seconds=interval)
    planner = Planner(fleet, migration_lock, planner_dependencies, dependencies.corrections.known)
    priorities = Priorities(_priority_class_reader(dependencies.api, scope), _now)
    adapters = PodAdapters(dependencies.is_leading)
    reconciler = Reconciler(
        sources=_sources(scope, dependencies, priorities, adapters),
        writer=Writer(dependencies.api, stores),
        planner=planner,
        record_event=dependencies.events.record,
        status_metrics=dependencies.status_metrics,
        now=_now,
        add_correction=dependencies.corrections.add,
        update_adapters=lambda key, calls: adapters.update(calls, partial(dependencies.wake, key)),
    )
    pools = PoolReporter(dependencies.api, fleet.view, catalog, _now, rendering)

    async def rebuild_state() -> None:
        # Nothing is awaited between the reads of the stores, so both show the same moment.
        classes = await priorities.read()
        workloads = ((Key(*owner), bodies) for owner, bodies in stores.workloads_by_owner())
        objects, metrics = stores.objects(INFERENCE_DEPLOYMENTS), dependencies.status_metrics
        rebuild_planning(fleet, migration_lock, workloads, objects, classes, metrics.record)
        metrics.complete()

    async def on_fleet_change() -> None:
        for key in migration_lock.lapsed(fleet.view().pools()):
            dependencies.wake(key)
        if scope.fleet_file is None:  # the pools of a fleet file have no status to write
            await pools.report()

    return Work(reconciler.reconcile, rebuild_state, on_fleet_change)


def _sources(
    scope: Scope,
    dependencies: LoopDependencies,
    priorities: Priorities,
    adapters: PodAdapters,
) -> Sources:
    settings = dependencies.settings
    hub_settings = HubSettings(
        endpoint=settings.hf_endpoint,
        cache_dir=Path(settings.hf_cache_directory) if settings.hf_cache_directory else None,
    )
    hub = HubModelCache(
        partial(fetch_checkpoint, settings=hub_settings),
        partial(fetch_adapter, settings=replace(hub_settings, inputs=ADAPTER_INPUTS)),
    )
    ask = _build_query(settings, dependencies.metrics.prometheus.asked)

    def ask_hub(key: Key) -> HubLookup:
        wake = Wake(dependencies.wake, key)
        return HubLookup(
            partial(hub.lookup, wake=wake, namespace=key.namespace),
            partial(hub.lookup_adapter, wake=wake, namespace=key.namespace),
        )

    return Sources(
        cache=dependencies.stores,
        live=dependencies.api,
        ask_hub=ask_hub,
        measure=_build_measure(ask if settings.prometheus_url else None, dependencies.wake),
        measure_load=partial(measure_load, ask, settings.scaling_interval_seconds),
        facts_at=FactReader(dependencies.api, _now).at,
        read_served=lambda key, pods, model, refresh: adapters.read(
            pods, model, refresh, partial(dependencies.wake, key)
        ),
        find_priority=priorities.find,
        # With a fleet file nothing cluster-scoped is read.
        read_volumes=VolumeReader(dependencies.api, _now).read
        if scope.fleet_file is None
        else require_nothing,
        missing_right=dependencies.missing_right,
        has_kind=dependencies.has_kind,
        shard=dependencies.fleet.view().shard,
        # A fleet file may be older than the nodes.
        has_node=dependencies.stores.has_node if scope.fleet_file is None else has_every_node,
        read_reports=PodReportCache(
            dependencies.api, _now, dependencies.stores.ended_pods.take
        ).read,
        read_starts=StartReader(dependencies.api, _now, dependencies.metrics.starts.record).read,
        read_download=DownloadReader(dependencies.api, _now).read,
    )


def _priority_class_reader(api: KubeApi, scope: Scope) -> Callable[[], Awaitable[list[Object]]]:
    """Build the reader of all PriorityClasses: from the API server, or from the fleet file."""
    file = scope.fleet_file
    if file is None:
        return partial(api.list, PRIORITY_CLASSES)

    async def read_file() -> list[Object]:
        return file.objects(PRIORITY_CLASSES)

    return read_file


def _build_query(settings: Settings, count: Callable[[QueryOutcome], None]) -> Query:
    """Build the query function; all queries share one source and its circuit breaker."""
    if settings.prometheus_url is None:
        return no_prometheus
    access = Access(
        settings.prometheus_url,
        bearer_token_file=settings.prometheus_bearer_token_file,
        ca_file=settings.prometheus_ca_file,
        tenant_header=settings.prometheus_tenant_header,
    )
    source = PrometheusSource(
        access, settings.prometheus_deadline_seconds, settings.scaling_interval_seconds, count
    )
    return source.ask


def _build_measure(ask: Query | None, wake: Callable[[Key], None]) -> Measure:
    """Build the measurement of KV caches: from Prometheus, or else from the pods themselves."""
    if ask is None:
        source = PodMetrics()
        return lambda key, pods: source.measure_caches(pods, partial(wake, key))
    return lambda key, pods: measure_caches(ask, key.namespace, pods)


def _now() -> datetime:
    return datetime.now(UTC)
