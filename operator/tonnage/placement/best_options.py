"""What the objects of a batch would best take, looked at together: an integer program.

One yes-or-no alternative stands for each object, pool and split that could hold all its replicas;
an object takes one alternative at most. Node-level packing: tensor-parallel sizes divide one
another, so replicas can be packed onto a pool's nodes exactly when, for each size g, those of g
GPUs and more, counted in blocks of g, are no more than the free blocks of g of all nodes. (With
sizes that do not divide one another this is a relaxation.) Goals, one after the other: most objects
placed whole, fewest tight fits that the user would avoid, fewest without a price, the lowest cost,
the fewest moves.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import Pool
from tonnage.placement.integer_program import Limit, Terms, minimise
from tonnage.placement.judge import PoolJudge
from tonnage.placement.memory import Memory
from tonnage.placement.model import Option, Rejection, Request
from tonnage.placement.sequence import Owner

_COST: Final = 3
"""Place of the cost among the goals."""


@dataclass(frozen=True, slots=True)
class BestOptions:
    """What each object takes, those that take nothing left out; `cost_bound` is the least that any
    assignment as good in the goals before the cost can cost an hour in US dollars."""

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
    stay: Mapping[Owner, Option],
    memory: Memory,
) -> BestOptions:
    """The best assignment of the requests to what is free in the pools.

    `stay` is what objects take without it; among equal assignments most of them take that. Raises
    integer_program.SolverMissingError, integer_program.NotSolvedError, and
    fit.options.InvalidOptionError for engine settings that cannot be.
    """
    found = [
        _Alternative(request.owner, option)
        for request in requests
        for option in _options(PoolJudge(request, catalog, memory), pools)
    ]
    limits = [*_one_for_each(found), *_packing(found, pools)]
    solution = minimise(len(found), limits, _goals(found, stay))
    taken = {found[number].owner: found[number].option for number in sorted(solution.taken)}
    return BestOptions(taken, solution.bounds[_COST])


def _options(judge: PoolJudge, pools: Iterable[Pool]) -> Iterable[Option]:
    """All options that have room for all replicas, were the object alone."""
    for pool in pools:
        options = judge.options(pool)
        if not isinstance(options, Rejection):
            yield from (option for option in options if option.room >= option.replicas)


def _one_for_each(found: Sequence[_Alternative]) -> Iterable[Limit]:
    of_owner: defaultdict[Owner, dict[int, float]] = defaultdict(dict)
    for number, one in enumerate(found):
        of_owner[one.owner][number] = 1
    return [Limit(terms, 1) for terms in of_owner.values()]


def _packing(found: Sequence[_Alternative], pools: Iterable[Pool]) -> Iterable[Limit]:
    of_pool: defaultdict[str, dict[int, Option]] = defaultdict(dict)
    for number, one in enumerate(found):
        of_pool[one.option.pool.name][number] = one.option
    for pool in pools:
        options = of_pool[pool.name]
        for size in sorted({option.parallelism.gpus for option in options.values()}):
            blocks = {
                number: option.replicas * (option.parallelism.gpus // size)
                for number, option in options.items()
                if option.parallelism.gpus >= size
            }
            yield Limit(blocks, pool.room_for(size))


def _goals(found: Sequence[_Alternative], stay: Mapping[Owner, Option]) -> list[Terms]:
    return [
        dict.fromkeys(range(len(found)), -1.0),
        {number: float(one.option.avoided) for number, one in enumerate(found)},
        {number: float(one.option.cost_per_hour is None) for number, one in enumerate(found)},
        {number: float(one.option.cost_per_hour or 0) for number, one in enumerate(found)},
        {number: float(_moves(one, stay)) for number, one in enumerate(found)},
    ]


def _moves(one: _Alternative, stay: Mapping[Owner, Option]) -> bool:
    before = stay.get(one.owner)
    return before is None or before.pool.name != one.option.pool.name
