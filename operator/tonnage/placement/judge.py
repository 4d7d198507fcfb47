"""Judges one pool: compatible, legal, large enough, within bounds, with capacity now or after the
node autoscaler? The result is its best option, or a rejection."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from operator import itemgetter

from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.fit.calibration.corrections import Corrections
from tonnage.fit.model import DoesNotFit, Parallelism
from tonnage.fleet.model import Pool
from tonnage.fleet.pools.network import format_how_to_declare
from tonnage.placement.adjustments import UNADJUSTED, EngineAdjustments
from tonnage.placement.cache import PlacementCache, Sizes
from tonnage.placement.filters.drivers import find_old_drivers
from tonnage.placement.filters.node_disk import find_missing_disk
from tonnage.placement.filters.node_resources import find_node_shortage
from tonnage.placement.filters.quotas import limit_to_quotas
from tonnage.placement.filters.screening import Devices, if_connected, screen_pool
from tonnage.placement.load import Load, load_of
from tonnage.placement.messages import (
    format_fit,
    format_missing_compute_domains,
    format_missing_workload_kind,
    format_no_capacity,
    format_pool_size,
)
from tonnage.placement.model import Option, PlacedFor, Rejection, Request
from tonnage.placement.options import make_options
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.scoring.bounds import keep_within_bounds
from tonnage.placement.scoring.compare import Ranked, rank_option
from tonnage.placement.scoring.ranking import rank
from tonnage.placement.scoring.sizing import Size, size_as_placed, size_replicas


class PoolJudge:
    """Judges the pools for one request, whose load is `load`. Sizes of the same devices, and
    `verdicts` on the same pool for an equal request, come from the cache.

    Raises fit.options.InvalidOptionError for invalid engine settings.
    """

    def __init__(
        self, request: Request, catalog: Catalog, cache: PlacementCache | None = None
    ) -> None:
        cache = cache or PlacementCache()
        self._request = request
        self._catalog = catalog
        self.load = _load_with(request.corrections, request, catalog)
        self._cache = cache
        self._sizes = cache.sizes(self.load)
        self._kept = {
            kept.pool: (load, self._sizes if load is self.load else cache.sizes(load), kept)
            for kept, load in _kept_loads(request, self.load, catalog)
        }
        kinds = request.has_leader_worker_set, request.has_compute_domains
        key = request.pods.key, kinds, request.spec.model.is_on_node_disk
        self.verdicts = cache.verdicts(self.load, request.spec.placement, key)

    def judge(self, pool: Pool) -> Option | Rejection:
        """Return the pool's best option for the request, or why it has none now or later. An option
        that fits without capacity is part of the rejection."""
        if self._is_kept(pool):
            return self._judge(pool)  # depends on the request's own replicas: not cached
        verdict = self._judge_other(pool)
        quotas = self._request.quotas
        if isinstance(verdict, Rejection) or not quotas:
            return verdict
        return limit_to_quotas(verdict, quotas, self._request.pods.usage(verdict))

    def _judge_other(self, pool: Pool) -> Option | Rejection:
        cause = self._request.failed_pools.get(pool.name)
        if cause is not None:
            message = f"its replicas did not come up there: {cause}"
            return Rejection(RejectedReason.FAILED_BEFORE, message)
        verdicts = self.verdicts.by_pool
        cached = verdicts.get(pool.name)
        if cached is None or cached[0] is not pool:
            cached = verdicts[pool.name] = pool, self._judge(pool)
        return cached[1]

    def rank(self, option: Option) -> Ranked:
        """Rank an option by the request; what the same option gave is cached."""
        ranked, name = self.verdicts.ranked, option.pool.name
        cached = ranked.get(name)
        if cached is None or cached.option is not option:
            cached = ranked[name] = rank_option(option, self._request.spec.placement)
        return cached

    def options(self, pool: Pool) -> Sequence[Option] | Rejection:
        """Return every parallelism on the pool that holds the workload within the user's bounds,
        with capacity or without."""
        devices = screen_pool(self._request.spec.placement, pool)
        if isinstance(devices, Rejection):
            return devices
        too_old = find_old_drivers(self._request.spec, pool, self.load.memory)
        if too_old is not None:
            return too_old
        no_disk = find_missing_disk(self._request.spec, self._request.checkpoint, pool)
        if no_disk is not None:
            return no_disk
        sizes = self._size(pool, devices)
        if isinstance(sizes, Rejection):
            return self._lacks_network(pool, devices, sizes.shortage) or sizes
        options = self._make_options(pool, sizes)
        running = next((option for option in options if self._runs(option)), None)
        if running is not None and (lacks := self._lacks_kind(running)) is not None:
            return lacks  # the replicas stay as they are: another option would stop them
        able = [option for option in options if self._lacks_kind(option) is None]
        if not able:
            return self._lacks_kind(options[0]) or ()
        return self._keep_within_bounds(pool, able)

    def _runs(self, option: Option) -> bool:
        """Whether replicas of the request run with this parallelism on this pool."""
        kept = self._kept.get(option.pool.name)
        return kept is not None and kept[2].parallelism == option.parallelism

    def _lacks_kind(self, option: Option) -> Rejection | None:
        """Reject an option on several nodes where the cluster lacks a kind that this takes. Running
        replicas have their objects of these kinds, also while the operator may not list them."""
        network, request, runs = option.pool.network, self._request, self._runs(option)
        if option.parallelism.nodes == 1:
            return None
        if not request.has_leader_worker_set and not runs:
            message = format_missing_workload_kind(option)
            return Rejection(RejectedReason.WORKLOAD_KIND_MISSING, message, option=option)
        has_channels = runs and option.pool.name in request.channel_pools
        needs_domain = network is not None and network.compute_domain and not has_channels
        if needs_domain and not request.has_compute_domains:
            message = format_missing_compute_domains(option)
            return Rejection(RejectedReason.NO_INTERCONNECT, message, option=option)
        return None

    def _lacks_network(
        self, pool: Pool, devices: Devices, shortage: DoesNotFit | None
    ) -> Rejection | None:
        """Reject a pool whose nodes lack memory and that would hold the workload on several nodes,
        if these were connected."""
        connected = if_connected(self._request.spec.placement, pool, devices)
        if connected is None or shortage is None:
            return None
        sizes = self._size_with(self.load, self._sizes, connected)
        if isinstance(sizes, Rejection):
            return None
        option = self._make_options(pool, sizes)[0]
        message = (
            f"{format_fit(option)}, but {pool.name} has no known network between its nodes;"
            f" {format_how_to_declare(pool)}, or allow TCP with spec.placement.multiNode:"
            f" {{maxNodes: {option.parallelism.nodes}, allowTcp: true}}"
        )
        return Rejection(RejectedReason.NO_INTERCONNECT, message, shortage, option)

    def _make_options(self, pool: Pool, sizes: Sequence[Size]) -> Sequence[Option]:
        return make_options(self._request, pool, sizes, self.verdicts.requests_on(pool))

    def _keep_within_bounds(
        self, pool: Pool, options: Sequence[Option]
    ) -> Sequence[Option] | Rejection:
        """Without the options that exceed a bound of the user, but for replicas that run: no price
        and no estimate makes them leave."""
        kept = self._kept[pool.name][2] if self._is_kept(pool) else None
        staying = [each for each in options if kept is not None and kept.stays_as(each)]
        others = [each for each in options if each not in staying]
        within = keep_within_bounds(self._request.spec, others) if others else ()
        if staying and isinstance(within, Rejection):
            return staying
        return within if isinstance(within, Rejection) else [*staying, *within]

    def _judge(self, pool: Pool) -> Option | Rejection:
        options = self.options(pool)
        if isinstance(options, Rejection):
            return _with_size(options, pool)
        admitted = _admit(self._request, options)
        if isinstance(admitted, Rejection):
            return admitted
        return _judge_options(self._request, pool, admitted)

    def _is_kept(self, pool: Pool) -> bool:
        return pool.name in self._kept

    def _size(self, pool: Pool, devices: Devices) -> Sequence[Size] | Rejection:
        if not self._is_kept(pool):
            return self._size_with(self.load, self._sizes, devices)
        load, cached, kept = self._kept[pool.name]
        sizes = self._size_with(load, cached, devices)
        engine = self._request.spec.engine.name
        if kept.placed_for is None or _has_failed(
            self._request, kept.parallelism, engine, devices.accelerator
        ):
            return sizes
        fitting = () if isinstance(sizes, Rejection) else sizes
        if any(size.parallelism == kept.parallelism for size in fitting):
            return sizes
        placed, tokens = (kept.parallelism, kept.adjustments), kept.placed_for.tokens
        size = size_as_placed(load, devices, placed, tokens, self._catalog)
        return sizes if size is None else [size, *fitting]

    def _size_with(self, load: Load, cached: Sizes, devices: Devices) -> Sequence[Size] | Rejection:
        if devices not in cached:
            cached[devices] = size_replicas(load, devices, self._catalog)
        return cached[devices]


def _load_with(corrections: Corrections, request: Request, catalog: Catalog) -> Load:
    return load_of(
        request.spec,
        request.checkpoint,
        catalog,
        corrections,
        request.failed_starts,
        request.demanded,
    )


@dataclass(frozen=True, slots=True)
class _Kept:
    """Replicas of the request that run on a pool, and what they were placed for."""

    pool: str
    parallelism: Parallelism
    adjustments: EngineAdjustments
    placed_for: PlacedFor | None

    def stays_as(self, option: Option) -> bool:
        """Whether the option is what runs, for the same demand."""
        same_demand = self.placed_for is not None and self.placed_for.same_demand
        return same_demand and option.parallelism == self.parallelism


def _kept_loads(request: Request, of_new: Load, catalog: Catalog) -> Iterator[tuple[_Kept, Load]]:
    """Return the replicas that already run, and the load to size them by; `of_new` is that of new
    ones, which differs at most in its corrections."""
    kept = [
        _Kept(one.pool, one.parallelism, one.adjustments, one.placed_for)
        for one in request.secondary
    ]
    if request.keep is not None:
        kept.append(_Kept(*request.keep, request.kept_adjustments, request.placed_for))
    if not kept:
        return
    load = of_new
    if request.kept_corrections != request.corrections:
        load = _load_with(request.kept_corrections, request, catalog)
    for one in kept:
        shareable = one.adjustments == UNADJUSTED and not request.failed_starts  # others share it
        placed = one.parallelism, one.adjustments
        yield one, load if shareable else replace(load, kept=placed)


def keeps_its_place(request: Request, option: Option) -> bool:
    """Whether the replicas run on this option now and can stay; where they ran out of memory,
    whether it is in the same pool: more of its devices come before another pool."""
    if request.keep is None or request.keep[0] != option.pool.name:
        return False
    if option.parallelism != request.keep[1] and not _has_failed(
        request, request.keep[1], option.engine, option.accelerator
    ):
        return False
    return option.grown_capacity > 0 or option.replicas == 0


def _has_failed(
    request: Request, parallelism: Parallelism, engine: str, accelerator: Accelerator
) -> bool:
    """Whether a start of the engine with this parallelism ran out of memory on this accelerator."""
    return any(
        one.is_of(engine, accelerator.id) and one.parallelism == parallelism
        for one in request.failed_starts
    )


def _with_size(rejection: Rejection, pool: Pool) -> Rejection:
    """Add the pool's size to the message where no parallelism holds the workload."""
    if rejection.option is not None:
        return rejection
    return replace(rejection, message=f"{rejection.message} ({format_pool_size(pool)})")


def _admit(request: Request, options: Sequence[Option]) -> Sequence[Option] | Rejection:
    """Return the options whose pods the namespace takes; without any, its refusal of the one with
    the fewest GPUs. Replicas that run stay."""
    admitted, refusals = [], []
    for option in options:
        stays = keeps_its_place(request, option) or _is_secondary(request, option)
        refusal = None if stays else request.pods.refuse(option)
        if refusal is None:
            admitted.append(option)
        else:
            refusals.append((option.parallelism.gpus, refusal))
    return admitted or min(refusals, key=itemgetter(0))[1]


def _judge_options(request: Request, pool: Pool, options: Sequence[Option]) -> Option | Rejection:
    """Return the best option that fits: where the replicas run now, else by the policy."""
    placement = request.spec.placement
    kept = _nearest_option(request, [each for each in options if keeps_its_place(request, each)])
    kept = kept or next((each for each in options if _is_secondary(request, each)), None)
    best = kept or min(options, key=lambda option: rank(option, placement))
    if best.grown_capacity > 0 or best.replicas == 0:
        return best
    # Without capacity the message names the shortage of the option with the fewest GPUs.
    best = min(options, key=lambda option: (option.parallelism.gpus, rank(option, placement)))
    return _reject_for_capacity(best, request.spec.engine.name)


def _reject_for_capacity(option: Option, engine: str) -> Rejection:
    """Reject the pool, on which no replica of the option can start, now or on nodes to come;
    `engine` is the name of its container."""
    if option.pool.unmet is not None:
        message = f"{format_fit(option)}, but {option.pool.unmet}"
        return Rejection(RejectedReason.NO_MATCHING_NODES, message, option=option)
    if not option.pool.nodes.counts.usable:
        reason = RejectedReason.NO_USABLE_NODES
    elif shortage := find_node_shortage(option, engine):
        message = f"{format_fit(option)}, but {shortage}"
        return Rejection(RejectedReason.INSUFFICIENT_RESOURCES, message, option=option)
    else:
        reason = RejectedReason.INSUFFICIENT_GPUS
    return Rejection(reason, format_no_capacity(option), option=option)


def _nearest_option(request: Request, options: Sequence[Option]) -> Option | None:
    """Return the option with the kept number of GPUs, else with the next more, else with fewer."""
    if request.keep is None:
        return None
    gpus = request.keep[1].gpus

    def distance(option: Option) -> tuple[bool, int, int]:
        more = option.parallelism.gpus - gpus
        return more < 0, abs(more), option.parallelism.data

    return min(options, key=distance, default=None)


def _is_secondary(request: Request, option: Option) -> bool:
    """Whether the option is that of a secondary placement, which can continue."""
    place = option.pool.name, option.parallelism
    return option.capacity > 0 and place in [
        (one.pool, one.parallelism) for one in request.secondary
    ]
