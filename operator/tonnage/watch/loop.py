"""The loop of `reconcile/`, connected to the process that runs it."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.hub import HubSettings, fetch_checkpoint
from tonnage.kube.kinds import DEPLOYMENTS, INFERENCE_DEPLOYMENTS, PRIORITY_CLASSES
from tonnage.kube.protocol import KubeApi, Object
from tonnage.reconcile.context import Dependencies
from tonnage.reconcile.execute import Writer
from tonnage.reconcile.key import Key
from tonnage.reconcile.model_source import HubLookup as AskHub
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import Measure, Sources
from tonnage.reconcile.planner import Planner
from tonnage.reconcile.pools import PoolReporter
from tonnage.reconcile.priority import Priorities
from tonnage.reconcile.reconciler import Reconciler
from tonnage.render.model import RenderSettings
from tonnage.runtime.models import HubLookup
from tonnage.runtime.settings import Settings
from tonnage.telemetry.access import Access
from tonnage.telemetry.cache import measure_caches
from tonnage.telemetry.load import measure_load
from tonnage.telemetry.pod_metrics import PodMetrics
from tonnage.telemetry.prometheus import PrometheusSource, QueryOutcome
from tonnage.telemetry.series import Ask, no_prometheus
from tonnage.watch.scope import Scope
from tonnage.watch.work import LoopDependencies, Work


def build_loop(settings: Settings, scope: Scope, dependencies: LoopDependencies) -> Work:
    """The work of one operator process."""
    catalog = load_catalog()
    fleet, moves, stores = dependencies.fleet, Moves(), dependencies.stores
    interval = settings.scaling_interval_seconds
    rendering = RenderSettings(hf_endpoint=settings.hf_endpoint)
    world = Dependencies(catalog, rendering, scaling_interval_seconds=interval)
    planner = Planner(fleet, moves, world, dependencies.wake, dependencies.lessons.known)
    priorities = Priorities(_read_classes(dependencies.api, scope), _now)
    reconciler = Reconciler(
        sources=_sources(settings, dependencies, priorities),
        writer=Writer(dependencies.api, stores),
        planner=planner,
        events=dependencies.events,
        book=dependencies.book,
        wake=dependencies.wake,
        now=_now,
        lessons=dependencies.lessons,
    )
    pools = PoolReporter(dependencies.api, fleet.view, catalog, _now)

    async def prime() -> None:
        # Nothing is awaited between the reads of the stores, so that both are of one moment.
        classes = await priorities.read()
        deployments = [without_template(obj) for obj in stores.objects(DEPLOYMENTS)]
        objects = stores.objects(INFERENCE_DEPLOYMENTS)
        dependencies.book.prime(planner.prime(deployments, objects, classes))

    async def on_fleet_change() -> None:
        for key in moves.lapsed(fleet.view().pools()):
            dependencies.wake(key)
        if scope.fleet_file is None:  # the objects of a file are written by nobody
            await pools.report()

    return Work(reconciler.reconcile, prime, on_fleet_change)


def _sources(settings: Settings, dependencies: LoopDependencies, priorities: Priorities) -> Sources:
    hub = HubLookup(
        partial(
            fetch_checkpoint,
            settings=HubSettings(
                endpoint=settings.hf_endpoint,
                cache_dir=Path(settings.hf_cache_directory)
                if settings.hf_cache_directory
                else None,
            ),
        )
    )
    ask = _ask_of(settings, dependencies.metrics.prometheus.asked)

    def ask_hub(key: Key) -> AskHub:
        return partial(hub.lookup, wake=partial(dependencies.wake, key))

    return Sources(
        cache=dependencies.stores,
        live=dependencies.api,
        ask_hub=ask_hub,
        measure=_measure_with(ask if settings.prometheus_url else None, dependencies.wake),
        measure_load=partial(measure_load, ask, settings.scaling_interval_seconds),
        find_priority=priorities.find,
        missing_right=dependencies.missing_right,
        shard=dependencies.fleet.view().shard,
    )


def _read_classes(api: KubeApi, scope: Scope) -> Callable[[], Awaitable[list[Object]]]:
    """How all PriorityClasses are read: from the API server, or from the fleet file."""
    file = scope.fleet_file
    if file is None:
        return partial(api.list, PRIORITY_CLASSES)

    async def read_file() -> list[Object]:
        return file.objects(PRIORITY_CLASSES)

    return read_file


def without_template(deployment: Object) -> Object:
    """A Deployment without its pod template, which is most of it."""
    rest = {name: value for name, value in deployment["spec"].items() if name != "template"}
    return {**deployment, "spec": rest}


def _ask_of(settings: Settings, count: Callable[[QueryOutcome], None]) -> Ask:
    """How all that vLLM measured is asked for: one source, so that what is down is known to all."""
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


def _measure_with(ask: Ask | None, wake: Callable[[Key], None]) -> Measure:
    """How it is found out what vLLM measured: from Prometheus, else from the pods themselves."""
    if ask is None:
        source = PodMetrics()
        return lambda key, pods: source.measure_caches(pods, partial(wake, key))
    return lambda key, pods: measure_caches(ask, key.namespace, (pod.name for pod in pods))


def _now() -> datetime:
    return datetime.now(UTC)
