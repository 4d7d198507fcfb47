"""Places a batch of requests one after another, as the operator does."""

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.catalog.catalog import Catalog
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.placement.cache import PlacementCache
from tonnage.placement.decide import decide
from tonnage.placement.model import Option, Request


@dataclass(frozen=True, slots=True)
class Sequenced:
    """The option chosen for one request of a batch; None where no pool could run any replica."""

    request: Request
    option: Option | None

    @property
    def fully_placed(self) -> Option | None:
        """The option if all replicas can start, else None."""
        option = self.option
        return option if option is not None and option.capacity >= option.replicas else None


def place_in_sequence(
    requests: Iterable[Request], snapshot: FleetSnapshot, catalog: Catalog, cache: PlacementCache
) -> tuple[Sequenced, ...]:
    """Decide on each request, with the GPUs of all earlier ones reserved.

    Raises fit.options.InvalidOptionError for invalid engine settings.
    """
    fleet = Fleet.of(snapshot, catalog)
    sequence = []
    for request in requests:
        pools = fleet.pools(request.owner, request.spec.tolerations)
        option = decide(request, pools, catalog, cache).chosen
        sequence.append(Sequenced(request, option))
        if option is not None:
            fleet.reserve(request.owner, [reservation_of(request, option)])
    return tuple(sequence)


def reservation_of(request: Request, option: Option) -> Reservation:
    """Return the reservation for the option's replicas that can start now."""
    return Reservation(
        owner=request.owner,
        placement=option.accelerator.id,
        pool=option.pool.name,
        footprint=option.parallelism.footprint,
        replicas=min(option.replicas, option.capacity),
    )
