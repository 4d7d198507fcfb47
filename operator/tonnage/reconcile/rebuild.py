"""What a leader that just began knows: all of it is read from what exists."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.fleet.model import Reservation
from tonnage.kube.protocol import Object
from tonnage.reconcile.children import parse_time
from tonnage.reconcile.key import Key
from tonnage.reconcile.ledger import read_reservations
from tonnage.reconcile.moves import MigrationCandidate, Moves
from tonnage.reconcile.priority import PriorityClasses
from tonnage.reconcile.retain import read_time
from tonnage.reconcile.turn import Precedence, read_claims


class Ledger(Protocol):
    """Where reservations and claims are kept."""

    def prime_reservations(self, reservations: Iterable[Reservation]) -> None:
        """The whole ledger, in place of what was there."""
        ...

    def wait_for_capacity(self, precedence: Precedence, claims: Iterable[Reservation] = ()) -> None:
        """The object waits, and would take this."""
        ...


def rebuild_state(
    ledger: Ledger,
    moves: Moves,
    deployments: Sequence[Object],
    objects: Iterable[Object],
    classes: PriorityClasses,
) -> list[tuple[Key, InferenceDeploymentStatus]]:
    """Fill the ledger and the moves from our Deployments and all InferenceDeployments; gives the
    statuses that were read for it.

    So nobody that waited under the leader before loses its place to one that comes first by chance.
    """
    ledger.prime_reservations(read_reservations(deployments))
    known = list(_read_statuses(objects, classes))
    for precedence, status in known:
        claims = read_claims((precedence.key.namespace, precedence.key.name), status)
        if claims:
            ledger.wait_for_capacity(precedence, claims)
    wishes = ((precedence, _read_wish(status)) for precedence, status in known)
    moves.prime(deployments, ((found, wish) for found, wish in wishes if wish is not None))
    return [(precedence.key, status) for precedence, status in known]


def _read_statuses(
    objects: Iterable[Object], classes: PriorityClasses
) -> Iterator[tuple[Precedence, InferenceDeploymentStatus]]:
    for body in objects:
        metadata = body["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        try:
            status = parse_model(InferenceDeploymentStatus, body.get("status") or {}, "status")
        except InvalidSpecError:  # an older version wrote it otherwise; its next plan tells
            continue
        priority = classes.find(_class_name(body))
        known = priority if isinstance(priority, int) else 0
        yield Precedence(known, parse_time(metadata["creationTimestamp"]), key), status


def _read_wish(status: InferenceDeploymentStatus) -> MigrationCandidate | None:
    moves_at = read_time(status.rebalance.moves_at) if status.rebalance else None
    return MigrationCandidate(moves_at) if moves_at is not None else None


def _class_name(body: Object) -> str | None:
    """The PriorityClass that the spec names, if it is as far right as that."""
    found: Any = body.get("spec")
    for name in ("template", "spec", "priorityClassName"):
        found = found.get(name) if isinstance(found, dict) else None
    return found if isinstance(found, str) else None
