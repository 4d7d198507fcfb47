"""How much of the cluster is served: a shard, some namespaces, a file for its fleet."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Labels, Parts, Selection
from tonnage.runtime.settings import Settings
from tonnage.watch.fleet_file import FleetFile, ReadFleetFile

WATCHED_BY_KOPF: Final = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)
"""The kinds of Tonnage; reflectors watch all others."""

WATCHED: Final = (*WATCHED_BY_KOPF, DEPLOYMENTS, SERVICES, PODS, NODES)

PARTS: Final = {NODES: Parts.PARTIAL, PODS: Parts.PARTIAL}
"""What is read of each object of a kind; of all other kinds everything."""

_SHARDED: Final = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, DEPLOYMENTS, SERVICES, NODES)
"""Kinds that are told apart by shards. Pods are not: those of every shard take GPUs."""

_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""A finished pod takes no GPU."""


@dataclass(frozen=True, slots=True)
class Scope:
    """No namespaces mean all; with a fleet file nothing cluster-scoped is asked for or written."""

    namespaces: tuple[str, ...] = ()
    fleet_file: FleetFile | None = None
    shard: Shard = UNNAMED_SHARD

    @property
    def watched_by_kopf(self) -> tuple[Kind, ...]:
        """The kinds that kopf watches."""
        return tuple(kind for kind in WATCHED_BY_KOPF if self._is_asked_for(kind))

    def selections(self, kinds: Iterable[Kind] = WATCHED) -> tuple[Selection, ...]:
        """What is listed of these kinds: a namespaced kind has one selection a namespace."""
        return tuple(
            Selection(
                kind,
                namespace,
                labels_of(kind, self.shard),
                fields=_RUNNING if kind == PODS else "",
            )
            for kind in kinds
            if self._is_asked_for(kind)
            for namespace in (self.namespaces if kind.namespaced else ()) or (None,)
        )

    def _is_asked_for(self, kind: Kind) -> bool:
        return kind.namespaced or self.fleet_file is None


def labels_of(kind: Kind, shard: Shard) -> Labels:
    """The labels by which objects of a kind are selected: those of the shard, and of children those
    of the operator."""
    own = {LABEL_MANAGED_BY: MANAGED_BY} if kind in (DEPLOYMENTS, SERVICES) else {}
    return {**own, **(shard.labels if kind in _SHARDED else {})}


def scope_of(settings: Settings, read: ReadFleetFile) -> Scope:
    """The scope that the settings ask for."""
    path = settings.fleet_file
    file = FleetFile(path, read) if path is not None else None
    return Scope(settings.namespaces, file, Shard(settings.shard))
