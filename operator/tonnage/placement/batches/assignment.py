"""The cheapest assignment of a whole batch, where placing in sequence is not optimal.

In sequence each object takes the cheapest pool that is left; an early one may take the GPUs that a
later one could have used better. This module plans all of them together. Objects of another policy
than LowestCost, and those with tolerations of their own, stay where the sequence places them.

The solution of the integer program is verified: the objects that are to take another pool are
pinned by `spec.placement`, the batch is placed in sequence once more, unplaced objects last, and
that placement is the result.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from tonnage.api.placement import PlacementPolicy, PlacementSpec
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.fleet import build_pools
from tonnage.fleet.model import FleetSnapshot
from tonnage.fleet.usage.gpu_pods import Owner
from tonnage.placement.batches.best_options import find_best_options
from tonnage.placement.batches.sequence import (
    Sequenced,
    place_in_sequence,
    reservation_of,
)
from tonnage.placement.cache import PlacementCache
from tonnage.placement.filters.screening import pin
from tonnage.placement.model import Option, Request


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch placed in sequence."""

    sequence: tuple[Sequenced, ...]

    @property
    def fully_placed(self) -> dict[Owner, Option]:
        """The options of the objects whose replicas can all start."""
        options = ((one.request.owner, one.fully_placed) for one in self.sequence)
        return {owner: option for owner, option in options if option is not None}

    @property
    def cost_per_hour(self) -> Decimal:
        """US dollars per hour of these objects, as far as prices are known."""
        costs = (option.cost_per_hour or Decimal(0) for option in self.fully_placed.values())
        return sum(costs, Decimal(0))

    def better_than(self, other: "Batch") -> bool:
        """Whether all replicas can start of more objects, or of as many at a lower cost."""
        mine, others = len(self.fully_placed), len(other.fully_placed)
        return mine > others or (mine == others and self.cost_per_hour < other.cost_per_hour)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A batch as the sequence places it before and after the `spec.placement` of `pins` (by owner)
    is set and the objects are created in the order of `after`.

    `pins` is empty, and `after` is `before`, where there is no better assignment.
    """

    before: Batch
    after: Batch
    pins: Mapping[Owner, PlacementSpec]


def assign(requests: Sequence[Request], fleet: FleetSnapshot, catalog: Catalog) -> Assignment:
    """Return the best assignment of new objects to the fleet, and the pins that achieve it.

    Raises integer_program.SolverMissingError, integer_program.NotSolvedError, and
    fit.options.InvalidOptionError for invalid engine settings.
    """
    placer = _BatchPlacer(fleet, catalog, PlacementCache())
    before = placer.place(requests)
    after, pins = _verify(_find_best(before, placer), before, placer)
    if not after.better_than(before):
        return Assignment(before, before, {})
    return Assignment(before, after, pins)


@dataclass(frozen=True, slots=True)
class _BatchPlacer:
    """Places batches in sequence on one fleet, with one cache."""

    fleet: FleetSnapshot
    catalog: Catalog
    cache: PlacementCache

    def place(self, requests: Iterable[Request]) -> Batch:
        return Batch(place_in_sequence(requests, self.fleet, self.catalog, self.cache))


def _find_best(before: Batch, placer: _BatchPlacer) -> dict[Owner, Option]:
    """Return the option for each object; immovable objects keep theirs."""
    whole, fleet = before.fully_placed, placer.fleet
    fixed = [
        reservation_of(one.request, one.option)
        for one in before.sequence
        if one.option is not None and not _can_move(one.request)
    ]
    movable = [one.request for one in before.sequence if _can_move(one.request)]
    pools = build_pools(replace(fleet, reservations=(*fleet.reservations, *fixed)), placer.catalog)
    best = find_best_options(movable, pools, placer.catalog, whole, placer.cache)
    immovable = whole.keys() - {request.owner for request in movable}
    return {owner: whole[owner] for owner in whole if owner in immovable} | best.taken


def _can_move(request: Request) -> bool:
    by_cost = request.spec.placement.policy is PlacementPolicy.LOWEST_COST
    return by_cost and not request.spec.tolerations


def _verify(
    targets: Mapping[Owner, Option], before: Batch, placer: _BatchPlacer
) -> tuple[Batch, dict[Owner, PlacementSpec]]:
    """Place in sequence, with every object pinned that would take another pool than its target."""
    requests = [one.request for one in before.sequence]
    requests.sort(key=lambda request: request.owner not in targets)
    placements = {request.owner: request.spec.placement for request in requests}
    pools, batch = build_pools(placer.fleet, placer.catalog), before
    pins: dict[Owner, PlacementSpec] = {}
    while misplaced := [owner for owner in _misplaced(targets, batch) if owner not in pins]:
        pins |= {owner: pin(placements[owner], targets[owner].pool, pools) for owner in misplaced}
        batch = placer.place(_with_placement(one, pins.get(one.owner)) for one in requests)
    return batch, pins


def _misplaced(targets: Mapping[Owner, Option], batch: Batch) -> list[Owner]:
    """Return the owners without all replicas in their target pool."""
    whole = batch.fully_placed
    return [
        owner
        for owner, option in targets.items()
        if owner not in whole or whole[owner].pool.name != option.pool.name
    ]


def _with_placement(request: Request, placement: PlacementSpec | None) -> Request:
    if placement is None:
        return request
    return replace(request, spec=request.spec.model_copy(update={"placement": placement}))
