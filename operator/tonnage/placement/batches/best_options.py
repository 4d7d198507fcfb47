"""The best options for all objects of a batch together: an integer program.

Each object, pool and parallelism that could run all its replicas is one yes-or-no alternative; an
object takes one alternative at most. Node-level packing: tensor-parallel sizes divide one another,
so replicas can be packed onto a pool's nodes exactly when, for each size g, those of g GPUs and
more, counted in blocks of g, are no more than the free blocks of g of all nodes. (With sizes that
do not divide one another this is a relaxation.) Goals, in order: most objects with all replicas,
fewest where the model is not verified, fewest tight fits that the user would avoid, fewest without
a price, the lowest cost, the fewest changes of pool.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fit.model import Footprint
from tonnage.fleet.model import Pool
from tonnage.fleet.usage.gpu_pods import Owner
from tonnage.placement.batches.integer_program import Limit, Weights, minimise
from tonnage.placement.cache import PlacementCache
from tonnage.placement.engine_choice import Judge, judge_for
from tonnage.placement.model import Option, Rejection, Request

_COST: Final = 4
"""Index of the cost among the goals."""


@dataclass(frozen=True, slots=True)
class BestOptions:
    """The option that each object takes, without objects that take none; `cost_bound` is a lower
    bound in US dollars per hour on any assignment as good in the goals before the cost."""

    taken: dict[Owner, Option]
    cost_bound: float


@dataclass(frozen=True, slots=True)
class _Alternative:
    owner: Owner
    option: Option


def find_best_options(
    requests: Iterable[Request],
    pools: Sequence[Pool],
    catalog: Catalog,
    current: Mapping[Owner, Option],
    cache: PlacementCache,
) -> BestOptions:
    """Return the best assignment of the requests to the free GPUs of the pools.

    `current` are the options that objects take otherwise; of equal assignments, the one that keeps
    most of them wins. Raises integer_program.SolverMissingError, integer_program.NotSolvedError,
    and fit.options.InvalidOptionError for invalid engine settings.
    """
    alternatives = [
        _Alternative(request.owner, option)
        for request in requests
        for option in _options(judge_for(request, catalog, cache), pools)
    ]
    limits = [*_limit_per_owner(alternatives), *_limit_per_pool(alternatives, pools)]
    solution = minimise(len(alternatives), limits, _goals(alternatives, current))
    taken = [alternatives[number] for number in sorted(solution.taken)]
    return BestOptions({one.owner: one.option for one in taken}, solution.bounds[_COST])


def _options(judge: Judge, pools: Iterable[Pool]) -> Iterable[Option]:
    """Return all options with capacity for all replicas of this object alone."""
    for pool in pools:
        options = judge.options(pool)
        if not isinstance(options, Rejection):
            yield from (option for option in options if option.capacity >= option.replicas)


def _limit_per_owner(alternatives: Sequence[_Alternative]) -> Iterable[Limit]:
    by_owner: defaultdict[Owner, dict[int, float]] = defaultdict(dict)
    for number, one in enumerate(alternatives):
        by_owner[one.owner][number] = 1
    return [Limit(weights, 1) for weights in by_owner.values()]


def _limit_per_pool(alternatives: Sequence[_Alternative], pools: Iterable[Pool]) -> Iterable[Limit]:
    by_pool: defaultdict[str, dict[int, Option]] = defaultdict(dict)
    for number, one in enumerate(alternatives):
        by_pool[one.option.pool.name][number] = one.option
    for pool in pools:
        options = by_pool[pool.name]
        footprints = {number: one.parallelism.footprint for number, one in options.items()}
        for size in sorted({each.gpus_per_node for each in footprints.values()}):
            blocks = {
                number: options[number].replicas * each.nodes * (each.gpus_per_node // size)
                for number, each in footprints.items()
                if each.gpus_per_node >= size
            }
            yield Limit(blocks, pool.replica_capacity(Footprint(size)))


def _goals(alternatives: Sequence[_Alternative], current: Mapping[Owner, Option]) -> list[Weights]:
    options = [one.option for one in alternatives]
    return [
        dict.fromkeys(range(len(options)), -1.0),
        {number: float(bool(option.unverified)) for number, option in enumerate(options)},
        {number: float(option.avoided) for number, option in enumerate(options)},
        {number: float(option.cost_per_hour is None) for number, option in enumerate(options)},
        {number: float(option.cost_per_hour or 0) for number, option in enumerate(options)},
        {number: float(_changes_pool(one, current)) for number, one in enumerate(alternatives)},
    ]


def _changes_pool(alternative: _Alternative, current: Mapping[Owner, Option]) -> bool:
    before = current.get(alternative.owner)
    return before is None or before.pool.name != alternative.option.pool.name
