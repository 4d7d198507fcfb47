"""Rebuild the state of a new leader from what exists."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.protocol import Object
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.findings import parse_time
from tonnage.reconcile.observation.previous import read_time
from tonnage.reconcile.observation.priority import Precedence, PriorityClasses
from tonnage.reconcile.scheduling.admission import read_claims
from tonnage.reconcile.scheduling.migration_lock import MigrationCandidate, MigrationLock
from tonnage.reconcile.scheduling.reservations import read_reservations


def rebuild_state(
    fleet: FleetState,
    migration_lock: MigrationLock,
    deployments: Sequence[Object],
    objects: Iterable[Object],
    classes: PriorityClasses,
) -> list[tuple[Key, InferenceDeploymentStatus]]:
    """Rebuild reservations, waiting objects and migrations from the operator's Deployments and all
    InferenceDeployments; return the statuses that were read.

    So no object that waited under the previous leader loses its place to one that comes first by
    chance.
    """
    fleet.rebuild_reservations(read_reservations(deployments))
    statuses = list(_read_statuses(objects, classes))
    for precedence, status in statuses:
        claims = read_claims(precedence.key, status)
        if claims:
            fleet.wait_for_capacity(precedence, claims)
    candidates = (
        (precedence, candidate)
        for precedence, status in statuses
        if (candidate := _read_candidate(status)) is not None
    )
    migration_lock.rebuild_state(deployments, candidates)
    return [(precedence.key, status) for precedence, status in statuses]


def _read_statuses(
    objects: Iterable[Object], classes: PriorityClasses
) -> Iterator[tuple[Precedence, InferenceDeploymentStatus]]:
    for body in objects:
        metadata = body["metadata"]
        key = Key(metadata["namespace"], metadata["name"])
        try:
            status = parse_model(InferenceDeploymentStatus, body.get("status") or {}, "status")
        except InvalidSpecError:  # an older version wrote it; the next plan replaces it
            continue
        priority = classes.find(_class_name(body))
        value = priority if isinstance(priority, int) else 0
        yield Precedence(value, parse_time(metadata["creationTimestamp"]), key), status


def _read_candidate(status: InferenceDeploymentStatus) -> MigrationCandidate | None:
    moves_at = read_time(status.rebalance.moves_at) if status.rebalance else None
    return MigrationCandidate(moves_at) if moves_at is not None else None


def _class_name(body: Object) -> str | None:
    """The PriorityClass that the spec names, if the spec is well formed down to there."""
    value: Any = body.get("spec")
    for name in ("template", "spec", "priorityClassName"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
