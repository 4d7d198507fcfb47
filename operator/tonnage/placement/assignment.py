"""The cheapest assignment of a whole batch, where one after another is not the best that can be.

In sequence each object takes the cheapest pool that is left; an early one may take the GPUs that a
later one could have made better use of. Here all are looked at together. Objects of another policy
than LowestCost, and those with tolerations of their own, stay where the sequence puts them.

What the integer program finds is not believed but carried out: the objects that are to go elsewhere
are pinned by `spec.placement`, the batch is placed in sequence once more, those without a place
last, and that is the answer.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from tonnage.api.inference import PlacementPolicy, PlacementSpec
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.model import FleetSnapshot
from tonnage.fleet.pools import build_pools
from tonnage.placement.best_options import find_best_options
from tonnage.placement.memory import Memory
from tonnage.placement.model import Option, Request
from tonnage.placement.pinning import pin
from tonnage.placement.sequence import Owner, Sequenced, place_in_sequence, reservation_of


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch placed in sequence."""

    sequence: tuple[Sequenced, ...]

    @property
    def whole(self) -> dict[Owner, Option]:
        """What the objects take that have room for all their replicas."""
        found = ((one.request.owner, one.whole) for one in self.sequence)
        return {owner: option for owner, option in found if option is not None}

    @property
    def cost_per_hour(self) -> Decimal:
        """US dollars an hour of these objects, as far as prices are known."""
        costs = (option.cost_per_hour or Decimal(0) for option in self.whole.values())
        return sum(costs, Decimal(0))

    def better_than(self, other: "Batch") -> bool:
        """More objects have room for all replicas, or as many for less money."""
        mine, others = len(self.whole), len(other.whole)
        return mine > others or (mine == others and self.cost_per_hour < other.cost_per_hour)


@dataclass(frozen=True, slots=True)
class Assignment:
    """A batch as the sequence places it, and as it does with the `spec.placement` of `pins` (by
    owner) when the objects are created in the order of `after`.

    `pins` is empty, and `after` is `before`, where nothing better was found.
    """

    before: Batch
    after: Batch
    pins: Mapping[Owner, PlacementSpec]


def assign(requests: Sequence[Request], fleet: FleetSnapshot, catalog: Catalog) -> Assignment:
    """The best assignment of new objects to the fleet, and what has to be set to get it.

    Raises integer_program.SolverMissingError, integer_program.NotSolvedError, and
    fit.options.InvalidOptionError for engine settings that cannot be.
    """
    where = _Where(fleet, catalog, Memory())
    before = where.place(requests)
    after, pins = _carry_out(_best(before, where), before, where)
    if not after.better_than(before):
        return Assignment(before, before, {})
    return Assignment(before, after, pins)


@dataclass(frozen=True, slots=True)
class _Where:
    """What does not change while one assignment is sought."""

    fleet: FleetSnapshot
    catalog: Catalog
    memory: Memory

    def place(self, requests: Iterable[Request]) -> Batch:
        return Batch(place_in_sequence(requests, self.fleet, self.catalog, self.memory))


def _best(before: Batch, where: _Where) -> dict[Owner, Option]:
    """What each object is to take; those that are not to move take it first."""
    whole, fleet = before.whole, where.fleet
    fixed = [
        reservation_of(one.request, one.option)
        for one in before.sequence
        if one.option is not None and not _can_move(one.request)
    ]
    movable = [one.request for one in before.sequence if _can_move(one.request)]
    pools = build_pools(replace(fleet, reservations=(*fleet.reservations, *fixed)), where.catalog)
    best = find_best_options(movable, pools, where.catalog, whole, where.memory)
    stay = whole.keys() - {request.owner for request in movable}
    return {owner: whole[owner] for owner in whole if owner in stay} | best.taken


def _can_move(request: Request) -> bool:
    by_cost = request.spec.placement.policy is PlacementPolicy.LOWEST_COST
    return by_cost and not request.spec.template.spec.tolerations


def _carry_out(
    wanted: Mapping[Owner, Option], before: Batch, where: _Where
) -> tuple[Batch, dict[Owner, PlacementSpec]]:
    """Place in sequence, with every object pinned that would go elsewhere by itself."""
    requests = [one.request for one in before.sequence]
    requests.sort(key=lambda request: request.owner not in wanted)
    asked = {request.owner: request.spec.placement for request in requests}
    pools, batch = build_pools(where.fleet, where.catalog), before
    pins: dict[Owner, PlacementSpec] = {}
    while strayed := [owner for owner in _strayed(wanted, batch) if owner not in pins]:
        pins |= {owner: pin(asked[owner], wanted[owner].pool, pools) for owner in strayed}
        batch = where.place(_with_placement(one, pins.get(one.owner)) for one in requests)
    return batch, pins


def _strayed(wanted: Mapping[Owner, Option], batch: Batch) -> list[Owner]:
    """Who is not whole in the pool where he is wanted."""
    whole = batch.whole
    return [
        owner
        for owner, option in wanted.items()
        if owner not in whole or whole[owner].pool.name != option.pool.name
    ]


def _with_placement(request: Request, placement: PlacementSpec | None) -> Request:
    if placement is None:
        return request
    return replace(request, spec=request.spec.model_copy(update={"placement": placement}))
