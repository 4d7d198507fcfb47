"""The loop of `reconcile/`, connected to the process that runs it."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from tonnage.catalog.load import load_catalog
from tonnage.checkpoint.hub import HubSettings, fetch_checkpoint
from tonnage.reconcile.moves import Moves
from tonnage.reconcile.observe import Measure, measure_nothing
from tonnage.reconcile.plan import World
from tonnage.reconcile.pools import PoolReporter
from tonnage.reconcile.reconciler import Reconciler
from tonnage.render.model import RenderSettings
from tonnage.runtime.models import HubLookup
from tonnage.runtime.settings import Settings
from tonnage.telemetry.prometheus import PrometheusSource
from tonnage.watch.work import Surroundings, Work


def build_loop(settings: Settings, surroundings: Surroundings) -> Work:
    """The work of one operator process."""
    catalog = load_catalog()
    world = World(catalog, RenderSettings(hf_endpoint=settings.hf_endpoint))
    hub = HubSettings(
        endpoint=settings.hf_endpoint,
        cache_dir=Path(settings.hf_cache_directory) if settings.hf_cache_directory else None,
    )
    moves = Moves()
    reconciler = Reconciler(
        api=surroundings.api,
        hub=HubLookup(partial(fetch_checkpoint, settings=hub)),
        fleet=surroundings.fleet,
        moves=moves,
        events=surroundings.events,
        book=surroundings.book,
        world=world,
        measure=_measure_with(settings.prometheus_url),
        wake=surroundings.wake,
        now=_now,
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


def _measure_with(url: str | None) -> Measure:
    """How vLLM's own measurements are asked for; without a Prometheus they are not."""
    return PrometheusSource(url).measure_cache if url else measure_nothing


def _now() -> datetime:
    return datetime.now(UTC)
