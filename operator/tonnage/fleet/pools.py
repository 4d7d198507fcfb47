"""The cluster's pools with what is free on each node, from one snapshot."""

from collections.abc import Sequence

from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.fleet import Fleet
from tonnage.fleet.held import Owner
from tonnage.fleet.model import FleetSnapshot, Pool


def build_pools(
    snapshot: FleetSnapshot,
    catalog: Catalog,
    excluding: Owner | None = None,
    tolerations: Sequence[Toleration] = (),
) -> tuple[Pool, ...]:
    """The pools of a fleet that nobody asks twice; what the arguments mean says Fleet.pools."""
    return Fleet.of(snapshot, catalog).pools(excluding, tolerations)
