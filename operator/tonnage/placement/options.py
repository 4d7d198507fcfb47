"""Makes the options of a pool: sizes with their replicas, their cost and the capacity for them."""

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Final, NamedTuple

from tonnage.api.placement import TightFit
from tonnage.fit.model import Parallelism
from tonnage.fleet.model import Pool
from tonnage.fleet.resources import NOTHING, Resources
from tonnage.placement.cache import PodRequests
from tonnage.placement.model import Option, Request
from tonnage.placement.pricing import PriceSource, price_per_device_hour
from tonnage.placement.scoring.sizing import Size


def make_options(
    request: Request, pool: Pool, sizes: Sequence[Size], requests: PodRequests
) -> Sequence[Option]:
    """Make an option of each size. `requests` are the known ones of pods on this pool; those of new
    plans are added."""
    price = price_per_device_hour(pool)
    options = []
    for size in sizes:
        plan = size.parallelism, size.fit.account.weights_bytes
        if plan not in requests:
            requests[plan] = request.pods.requests(_make_option(request, pool, size, price))
        capacity = _count_capacity(request, pool, size.parallelism, requests[plan])
        options.append(_make_option(request, pool, size, price, capacity))
    return options


class _Capacity(NamedTuple):
    """Replicas that can run on the pool, now and after growth, whose pods request `others` besides
    GPUs."""

    now: int
    grown: int
    others: Resources


_NOT_COUNTED: Final = _Capacity(0, 0, NOTHING)


def _make_option(
    request: Request,
    pool: Pool,
    size: Size,
    price_and_source: tuple[Decimal | None, PriceSource],
    capacity: _Capacity = _NOT_COUNTED,
) -> Option:
    price, source = price_and_source
    gpus = size.parallelism.gpus
    replicas = _count_wanted(request, pool, size, None if price is None else price * gpus)
    return Option(
        pool=pool,
        parallelism=size.parallelism,
        fit=size.fit,
        replicas=replicas,
        capacity=capacity.now,
        grown_capacity=capacity.grown,
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
        unverified=size.compatibility.unverified,
        others=capacity.others,
        engine=request.spec.engine.name,
    )


def _count_capacity(
    request: Request, pool: Pool, parallelism: Parallelism, others: Resources
) -> _Capacity:
    footprint = parallelism.footprint
    now, added = pool.replica_capacity(footprint, others), 0
    if pool.nodes.counts.to_come:
        added = pool.capacity_after_growth(footprint, others) - now
    now = max(now, _count_held(request, pool, parallelism))
    return _Capacity(now, now + added, others)


def _count_held(request: Request, pool: Pool, parallelism: Parallelism) -> int:
    """Count replicas of this parallelism that hold GPUs of the pool, whatever is free there."""
    if request.keep == (pool.name, parallelism):
        return request.held
    place = pool.name, parallelism
    return sum(one.held for one in request.secondary if (one.pool, one.parallelism) == place)


def _count_wanted(
    request: Request, pool: Pool, size: Size, cost_per_replica: Decimal | None
) -> int:
    """Count the wanted replicas. The measured load demands replicas of the kept option, at most as
    many as the user's bound on the cost allows: load must not make running replicas too expensive.
    """
    demanded, bound = request.demanded, request.spec.placement.max_cost_per_hour
    if demanded is None:
        return _count_placed(request, pool, size) or size.replicas
    wanted = demanded.replicas if _is_kept(request, pool, size) else size.replicas
    if bound is None or not cost_per_replica:
        return wanted
    affordable = int(Decimal(bound) // cost_per_replica)
    return min(wanted, max(request.spec.scaling.min_replicas, affordable))


def _count_placed(request: Request, pool: Pool, size: Size) -> int | None:
    """Return the number of running replicas that the same demand of the spec gave when they were
    placed; None where it counts anew."""
    placed = request.placed_for
    counted = request.spec.replicas is None and _is_kept(request, pool, size)
    return placed.replicas if counted and placed is not None and placed.same_demand else None


def _needed(request: Request, pool: Pool, size: Size, wanted: int) -> Fraction | None:
    """Return the number that these replicas were rounded up from, None where they were not."""
    rounded = size.replicas == wanted and not _is_kept(request, pool, size)
    return size.needed if rounded else None


def _is_kept(request: Request, pool: Pool, size: Size) -> bool:
    return request.keep == (pool.name, size.parallelism)
