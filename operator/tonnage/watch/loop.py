"""The loop of `reconcile/`, connected to the process that runs it."""

from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.hub import HubSettings, fetch_checkpoint
from tonnage.reconcile.case import World
from tonnage.reconcile.key import Key
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import Measure
from tonnage.reconcile.pools import PoolReporter
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
from tonnage.watch.work import Surroundings, Work


def build_loop(settings: Settings, surroundings: Surroundings) -> Work:
    """The work of one operator process."""
    catalog = load_catalog()
    interval = settings.scaling_interval_seconds
    rendering = RenderSettings(hf_endpoint=settings.hf_endpoint)
    world = World(catalog, rendering, scaling_interval_seconds=interval)
    hub = HubSettings(
        endpoint=settings.hf_endpoint,
        cache_dir=Path(settings.hf_cache_directory) if settings.hf_cache_directory else None,
    )
    ask = _ask_of(settings, surroundings.count_question)
    moves = Moves()
    reconciler = Reconciler(
        api=surroundings.api,
        hub=HubLookup(partial(fetch_checkpoint, settings=hub)),
        fleet=surroundings.fleet,
        moves=moves,
        events=surroundings.events,
        book=surroundings.book,
        world=world,
        measure=_measure_with(ask if settings.prometheus_url else None, surroundings.wake),
        wake=surroundings.wake,
        now=_now,
        measure_load=partial(measure_load, ask, interval),
        lessons=surroundings.lessons,
        looks=surroundings.looks,
        newborns=surroundings.newborns,
    )
    pools = PoolReporter(surroundings.api, surroundings.fleet.view, catalog, _now)

    async def on_fleet_change() -> None:
        for key in moves.lapsed(surroundings.fleet.view().pools()):
            surroundings.wake(key)
        if settings.fleet_file is None:  # what stands in a file is nobody's to report
            await pools.report()

    return Work(
        reconcile=reconciler.reconcile,
        prime=reconciler.prime,
        on_fleet_change=on_fleet_change,
    )


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
