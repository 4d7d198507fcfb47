"""Rebuild the state of a new leader from what exists."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.status import InferenceDeploymentStatus
from tonnage.kube.protocol import Object
from tonnage.reconcile.fleet_state import FleetState
from tonnage.reconcile.key import Key
from tonnage.reconcile.observation.children import read_deployment
from tonnage.reconcile.observation.findings import parse_time
from tonnage.reconcile.observation.previous import read_time
from tonnage.reconcile.observation.priority import Precedence, PriorityClasses
from tonnage.reconcile.scheduling.admission import read_claims
from tonnage.reconcile.scheduling.migration_lock import (
    MigrationCandidate,
    MigrationLock,
    is_under_way,
)
from tonnage.reconcile.scheduling.reservations import owner_name, reserve_for


def rebuild_state(
    fleet: FleetState,
    migration_lock: MigrationLock,
    workloads: Iterable[tuple[Key, Sequence[Object]]],
    objects: Iterable[Object],
    classes: PriorityClasses,
    record: Callable[[Key, InferenceDeploymentStatus], None] = lambda _, __: None,
) -> None:
    """Rebuild reservations, waiting objects and migrations from the operator's workloads, those of
    one InferenceDeployment at a time, and all InferenceDeployments. `record` gets the statuses.

    So no object that waited under the previous leader loses its place to one that comes first by
    chance. Objects are dropped one after the other, because thousands would take hundreds of
    megabytes.
    """
    reservations, migrating = [], []
    for key, bodies in workloads:
        children = [read_deployment(body) for body in bodies if owner_name(body) == key.name]
        reservations += [reserve_for(key, child) for child in children]
        if is_under_way(children):
            migrating.append(key)
    fleet.rebuild_reservations(reservations)
    candidates = []
    for precedence, status in _read_statuses(objects, classes):
        claims = read_claims(precedence.key, status)
        if claims:
            fleet.wait_for_capacity(precedence, claims)
        candidate = _read_candidate(status)
        if candidate is not None:
            candidates.append((precedence, candidate))
        record(precedence.key, status)
    migration_lock.rebuild_state(migrating, candidates)


def group_by_owner(workloads: Iterable[Object]) -> Iterable[tuple[Key, Sequence[Object]]]:
    """The workloads of each InferenceDeployment; without those that none controls."""
    owned: dict[Key, list[Object]] = {}
    for body in workloads:
        owner = owner_name(body)
        if owner is not None:
            owned.setdefault(Key(body["metadata"]["namespace"], owner), []).append(body)
    return owned.items()


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
    spec: Any = body.get("spec")
    field = "podTemplate" if isinstance(spec, dict) and "podTemplate" in spec else "template"
    value = spec
    for name in (field, "spec", "priorityClassName"):
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None
