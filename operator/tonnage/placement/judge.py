"""One pool judged: compatible, legal, large enough, within bounds, with room now or after the node
autoscaler? Its best option comes out, or what stands against it."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fractions import Fraction

from tonnage.api.inference import TightFit
from tonnage.catalog.catalog import Catalog
from tonnage.catalog.model import Accelerator
from tonnage.fit.corrections import Corrections
from tonnage.fit.model import Parallelism
from tonnage.fit.options import engine_options
from tonnage.fleet.model import Pool
from tonnage.placement.adjustments import UNADJUSTED
from tonnage.placement.bounds import keep_within_bounds
from tonnage.placement.load import Load, load_of
from tonnage.placement.memory import Memory
from tonnage.placement.messages import tell_no_room, tell_size
from tonnage.placement.model import Option, Rejection, Request
from tonnage.placement.pricing import PriceSource, price_per_device_hour
from tonnage.placement.ranking import rank
from tonnage.placement.reasons import RejectedReason
from tonnage.placement.screening import Devices, screen_pool
from tonnage.placement.sizing import Size, size_replicas


class PoolJudge:
    """Judges the pools for one request; those with the same devices are sized once, and what was
    found out for a request before that asks for the same is remembered.

    Raises fit.options.InvalidOptionError for engine settings that cannot be.
    """

    def __init__(self, request: Request, catalog: Catalog, memory: Memory | None = None) -> None:
        memory = memory or Memory()
        self._request = request
        self._catalog = catalog
        self._load = _load_with(request.corrections, request, catalog)
        self._sized = memory.sizes(self._load)
        self._kept = {
            pool: (load, memory.sizes(load)) for pool, load in _kept_loads(request, catalog)
        }
        self._verdicts = memory.verdicts(self._load, request.spec.placement)

    def judge(self, pool: Pool) -> Option | Rejection:
        """The best that the pool can do for the request by itself, or why it can do nothing now or
        later. A split that fits and has no room is in the rejection, so that it can be told."""
        if self._is_kept(pool):
            return self._judge(pool)  # what the replicas have there is theirs alone
        known = self._verdicts.get(pool.name)
        if known is None or known[0] is not pool:
            known = self._verdicts[pool.name] = pool, self._judge(pool)
        return known[1]

    def options(self, pool: Pool) -> Sequence[Option] | Rejection:
        """Every split of the pool's devices that holds the workload within the user's bounds, with
        room or without."""
        devices = screen_pool(self._request.spec.placement, pool)
        sizes = devices if isinstance(devices, Rejection) else self._size(pool, devices)
        if isinstance(sizes, Rejection):
            return sizes
        return keep_within_bounds(self._request.spec, _make_options(self._request, pool, sizes))

    def _judge(self, pool: Pool) -> Option | Rejection:
        options = self.options(pool)
        if isinstance(options, Rejection):
            return _with_size(options, pool)
        return _judge_options(self._request, pool, options)

    def _is_kept(self, pool: Pool) -> bool:
        return pool.name in self._kept

    def _size(self, pool: Pool, devices: Devices) -> Sequence[Size] | Rejection:
        load, sized = self._load, self._sized
        if self._is_kept(pool):
            load, sized = self._kept[pool.name]
        if devices not in sized:
            sized[devices] = size_replicas(load, devices, self._catalog)
        return sized[devices]


def _load_with(corrections: Corrections, request: Request, catalog: Catalog) -> Load:
    options, shape = engine_options(request.spec, catalog), request.checkpoint.shape
    learnt = corrections.of(shape, options, catalog.release(options.vllm_version))
    return load_of(
        request.spec, request.checkpoint, options, learnt, request.tried, request.demanded
    )


def _kept_loads(request: Request, catalog: Catalog) -> Iterator[tuple[str, Load]]:
    """The load as the pools that replicas run on carry it already, by the pool's name."""
    kept = [(one.pool, one.parallelism, one.adjustments) for one in request.beside]
    if request.keep is not None:
        kept.append((*request.keep, request.kept_adjustments))
    if not kept:
        return
    load = _load_with(request.kept_corrections, request, catalog)
    for pool, parallelism, now in kept:
        as_usual = now == UNADJUSTED and not request.tried  # other objects ask the same
        yield pool, load if as_usual else replace(load, kept=(parallelism, now))


def keeps_its_place(request: Request, option: Option) -> bool:
    """Whether the replicas run on this very option now and can stay there; where they died of
    memory, whether it is in the same pool: more devices of it come before another one."""
    if request.keep is None or request.keep[0] != option.pool.name:
        return False
    if option.parallelism != request.keep[1] and not _died(request, option.accelerator):
        return False
    return option.grown_room > 0 or option.replicas == 0


def _died(request: Request, accelerator: Accelerator) -> bool:
    """Whether a start of the kept split died of memory on such devices."""
    return request.keep is not None and any(
        (one.accelerator_id, one.parallelism) == (accelerator.id, request.keep[1])
        for one in request.tried
    )


def _with_size(rejection: Rejection, pool: Pool) -> Rejection:
    """Where no split holds the workload, the pool's size tells what is thereby out of reach."""
    if rejection.option is not None:
        return rejection
    return replace(rejection, message=f"{rejection.message} ({tell_size(pool)})")


def _judge_options(request: Request, pool: Pool, options: Sequence[Option]) -> Option | Rejection:
    """The best of the splits that fit: where the replicas run now, else by the policy."""
    policy = request.spec.placement.policy
    kept = _nearest_split(request, [each for each in options if keeps_its_place(request, each)])
    kept = kept or next((each for each in options if _runs_beside(request, each)), None)
    best = kept or min(options, key=lambda option: rank(option, policy))
    if best.grown_room > 0 or best.replicas == 0:
        return best
    # What it lacks is what the smallest split lacks, whichever is the best where there is room.
    best = min(options, key=lambda option: (option.parallelism.gpus, rank(option, policy)))
    usable = pool.nodes.counts.usable
    lacking = RejectedReason.INSUFFICIENT_GPUS if usable else RejectedReason.NO_USABLE_NODES
    return Rejection(lacking, tell_no_room(best), option=best)


def _nearest_split(request: Request, options: Sequence[Option]) -> Option | None:
    """The option with the kept split, else with the next more devices, else with fewer."""
    if request.keep is None:
        return None
    gpus = request.keep[1].gpus

    def distance(option: Option) -> tuple[bool, int]:
        more = option.parallelism.gpus - gpus
        return more < 0, abs(more)

    return min(options, key=distance, default=None)


def _runs_beside(request: Request, option: Option) -> bool:
    """Whether the option is that of replicas beside, and can go on."""
    place = option.pool.name, option.parallelism
    return option.room > 0 and place in [(one.pool, one.parallelism) for one in request.beside]


def _held_in(request: Request, pool: Pool, parallelism: Parallelism) -> int:
    """Replicas of the split that have GPUs of the pool, whatever is free there."""
    if request.keep == (pool.name, parallelism):
        return request.held
    place = pool.name, parallelism
    return sum(one.held for one in request.beside if (one.pool, one.parallelism) == place)


def _make_options(request: Request, pool: Pool, sizes: Sequence[Size]) -> Sequence[Option]:
    price, source = price_per_device_hour(pool)
    return [_make_option(request, pool, size, price, source) for size in sizes]


def _make_option(
    request: Request, pool: Pool, size: Size, price: Decimal | None, source: PriceSource
) -> Option:
    gpus = size.parallelism.gpus
    replicas = _count_wanted(request, pool, size, None if price is None else price * gpus)
    room = pool.room_for(gpus)
    added = pool.room_after_growth(gpus) - room
    room = max(room, _held_in(request, pool, size.parallelism))
    return Option(
        pool=pool,
        parallelism=size.parallelism,
        fit=size.fit,
        replicas=replicas,
        room=room,
        grown_room=room + added,
        cost_per_hour=None if price is None else price * gpus * replicas,
        price_source=source,
        estimate=size.estimate,
        price_per_gpu_hour=price,
        notes=size.notes,
        overridden=tuple(refusal.rule for refusal in size.compatibility.overridden),
        settings=size.compatibility.settings,
        adjustments=size.adjustments,
        full=size.full,
        needed=_needed(request, pool, size, replicas),
        avoided=size.fit.tight and request.spec.placement.tight_fit is TightFit.AVOID,
    )


def _count_wanted(request: Request, pool: Pool, size: Size, each_costs: Decimal | None) -> int:
    """The replicas that are wanted. What the measured load asks for is meant for those that are
    there, and no more than the user's bound on the cost allows: what runs must not become too dear
    by its load."""
    demanded, bound = request.demanded, request.spec.placement.max_cost_per_hour
    if demanded is None:
        return size.replicas
    wanted = demanded.replicas if _is_kept(request, pool, size) else size.replicas
    if bound is None or not each_costs:
        return wanted
    affordable = int(Decimal(bound) // each_costs)
    return min(wanted, max(request.spec.scaling.min_replicas, affordable))


def _needed(request: Request, pool: Pool, size: Size, wanted: int) -> Fraction | None:
    """What these replicas were rounded up from, where they were."""
    rounded = size.replicas == wanted and not _is_kept(request, pool, size)
    return size.needed if rounded else None


def _is_kept(request: Request, pool: Pool, size: Size) -> bool:
    return request.keep == (pool.name, size.parallelism)
