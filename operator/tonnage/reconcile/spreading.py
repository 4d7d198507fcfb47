"""How the replicas of one object are split over pools, by what the user allows. Pure.

One placement comes first: it is chosen, kept and left as if it were alone. The others are beside
it, and carry what it does not. What runs is the state: no split needs any other memory.
"""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tonnage.api.inference import PlacementSpec, SpreadPolicy
from tonnage.placement.model import Decision, Option, RunningBeside, Verdict
from tonnage.placement.ranking import preference
from tonnage.placement.spread import Share, SpreadLimits, split_over
from tonnage.reconcile.children import ChildDeployment
from tonnage.render.names import further_placement_name

_LEAST_REPLICAS: Final = 1
_MOST_POOLS: Final = 4


def may_spread(placement: PlacementSpec) -> bool:
    """Whether several pools may carry the replicas at once."""
    return placement.spread.policy not in (None, SpreadPolicy.NEVER)


def split(
    placement: PlacementSpec,
    decision: Decision,
    running: Collection[ChildDeployment],
    has_failed: Callable[[Option], bool],
) -> tuple[Share, ...]:
    """The replicas by pool, in the order of preference; what is `running` is kept as long as it is
    needed. A pool on which replicas did not come up takes none beside another."""
    chosen = decision.chosen
    if chosen is None:
        return ()
    held = {found.pool: found.wanted for found in running}
    options = [
        found.option
        for found in decision.candidates
        if found.option is not None
        and found.verdict is not Verdict.REJECTED
        and (found.option is chosen or _may_take(found.option, chosen, held, has_failed))
    ]
    options.sort(key=lambda option: preference(option, placement.policy))
    return split_over(options, held, _limits(placement))


def running_beside(
    running: Iterable[ChildDeployment], count_held: Callable[[ChildDeployment], int]
) -> tuple[RunningBeside, ...]:
    """The shares that run, as placement looks at them."""
    return tuple(
        RunningBeside(found.pool, found.parallelism, count_held(found), found.adjustments)
        for found in running
    )


def name_placements(
    shares: Sequence[Share], running: Collection[ChildDeployment]
) -> tuple[Share, ...]:
    """The shares with names of placements: that of the Deployment which runs on the pool already,
    else the accelerator's, else a further one of the same accelerator."""
    by_pool = {
        (one.pool, one.accelerator): one.placement
        for one in running
        if re.fullmatch(f"{re.escape(one.accelerator)}(-[0-9a-f]{{5}})?", one.placement)
    }
    taken = {by_pool.get(_place(share.option)) for share in shares}
    named = []
    for share in shares:
        option = share.option
        name = by_pool.get(_place(option))
        if name is None:
            usual = option.accelerator.id
            name = further_placement_name(option) if usual in taken else usual
            taken.add(name)
        named.append(replace(share, option=_named(option, name)))
    return tuple(named)


def _place(option: Option) -> tuple[str, str]:
    return option.pool.name, option.accelerator.id


def _named(option: Option, name: str) -> Option:
    return option if name == option.accelerator.id else replace(option, placement=name)


def _may_take(
    option: Option,
    chosen: Option,
    held: Collection[str],
    has_failed: Callable[[Option], bool],
) -> bool:
    if has_failed(option) or option.replicas == 0:
        return False
    return option.pool.name in held or chosen.avoided or not option.avoided


def _limits(placement: PlacementSpec) -> SpreadLimits:
    spread = placement.spread
    bound = placement.max_cost_per_hour
    return SpreadLimits(
        spread.min_replicas_per_pool or _LEAST_REPLICAS,
        spread.max_pools or _MOST_POOLS,
        None if bound is None else Decimal(bound),
    )
