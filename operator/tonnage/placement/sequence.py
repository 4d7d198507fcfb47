"""A batch of requests placed one after another, as the operator places them."""

from collections.abc import Iterable
from dataclasses import dataclass

from tonnage.catalog.catalog import Catalog
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.model import FleetSnapshot, Reservation
from tonnage.placement.decide import decide
from tonnage.placement.memory import Memory
from tonnage.placement.model import Option, Request

Owner = tuple[str, str]
"""Namespace and name of an InferenceDeployment."""


@dataclass(frozen=True, slots=True)
class Sequenced:
    """What one request of a batch was given in its turn; None where no pool had room for any."""

    request: Request
    option: Option | None

    @property
    def whole(self) -> Option | None:
        """The option, where it has room for all replicas."""
        option = self.option
        return option if option is not None and option.room >= option.replicas else None


def place_in_sequence(
    requests: Iterable[Request], snapshot: FleetSnapshot, catalog: Catalog, memory: Memory
) -> tuple[Sequenced, ...]:
    """Decide on each request in the fleet that the ones before it have left.

    Raises fit.options.InvalidOptionError for engine settings that cannot be.
    """
    fleet = Fleet.of(snapshot, catalog)
    placed = []
    for request in requests:
        pools = fleet.pools(request.owner, request.spec.template.spec.tolerations)
        option = decide(request, pools, catalog, memory).chosen
        placed.append(Sequenced(request, option))
        if option is not None:
            fleet.reserve(request.owner, [reservation_of(request, option)])
    return tuple(placed)


def reservation_of(request: Request, option: Option) -> Reservation:
    """The GPUs that the option's replicas get now."""
    return Reservation(
        owner=request.owner,
        placement=option.accelerator.id,
        pool=option.pool.name,
        gpus_per_replica=option.parallelism.gpus,
        replicas=min(option.replicas, option.room),
    )
