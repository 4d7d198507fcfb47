"""Split the replicas of one object over pools, within the user's limits. Pure.

One placement comes first: it is chosen, kept and left as if it were the only one. The secondary
ones carry the rest. The running Deployments are the state: no split needs any other.
"""

import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Final

from tonnage.api.placement import PlacementSpec, SpreadPolicy
from tonnage.placement.model import Decision, Option, Verdict
from tonnage.placement.scoring.ranking import preference
from tonnage.placement.spread import Share, SpreadLimits, split_over
from tonnage.reconcile.observation.children import ChildDeployment
from tonnage.workloads.names import secondary_placement_name

_LEAST_REPLICAS: Final = 1
_MOST_POOLS: Final = 4


def may_spread(placement: PlacementSpec) -> bool:
    """Whether several pools may carry the replicas at once."""
    return placement.spread.policy not in (None, SpreadPolicy.NEVER)


def split_replicas(
    placement: PlacementSpec,
    decision: Decision,
    running: Collection[ChildDeployment],
    has_failed: Callable[[Option], bool],
) -> tuple[Share, ...]:
    """The replicas by pool, in the order of preference; what is `running` is kept as long as it is
    needed. A pool on which replicas failed to start gets no secondary placement."""
    chosen = decision.chosen
    if chosen is None:
        return ()
    held = {deployment.pool: deployment.wanted for deployment in running}
    options = [
        candidate.option
        for candidate in decision.candidates
        if candidate.option is not None
        and candidate.verdict is not Verdict.REJECTED
        and (candidate.option is chosen or _may_take(candidate.option, chosen, held, has_failed))
    ]
    options.sort(key=lambda option: preference(option, placement.policy))
    return split_over(options, held, _limits(placement))


def name_placements(
    shares: Sequence[Share], running: Collection[ChildDeployment]
) -> tuple[Share, ...]:
    """Name the placement of each share: as the Deployment that runs on the pool already, else as
    the accelerator, else a further name of that accelerator."""
    by_pool = {
        (deployment.pool, deployment.accelerator, deployment.parallelism.nodes): (
            deployment.placement
        )
        for deployment in running
        if re.fullmatch(
            f"{re.escape(deployment.accelerator)}(-[0-9]+nodes)?(-[0-9a-f]{{5}})?",
            deployment.placement,
        )
    }
    taken = {by_pool.get(_place_of(share.option)) for share in shares}
    named_shares = []
    for share in shares:
        option = share.option
        name = by_pool.get(_place_of(option))
        if name is None:
            default = option.placement_name
            name = secondary_placement_name(option) if default in taken else default
            taken.add(name)
        named_shares.append(replace(share, option=_with_name(option, name)))
    return tuple(named_shares)


def _place_of(option: Option) -> tuple[str, str, int]:
    return option.pool.name, option.accelerator.id, option.parallelism.nodes


def _with_name(option: Option, name: str) -> Option:
    return option if name == option.placement_name else replace(option, placement=name)


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
