"""The part of the cluster that the operator serves: a shard, namespaces, a fleet file."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.controller.settings import Settings
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    COMPUTE_DOMAINS,
    DEPLOYMENTS,
    DEVICE_CLASSES,
    INFERENCE_DEPLOYMENTS,
    JOBS,
    LEADER_WORKER_SETS,
    LIMIT_RANGES,
    NAMESPACES,
    NODES,
    POD_DISRUPTION_BUDGETS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_QUOTAS,
    RESOURCE_SLICES,
    SERVICES,
)
from tonnage.kube.protocol import Kind, Labels, ObjectParts, Selection
from tonnage.manager.fleet_file import FleetFile, ReadFleetFile

WATCHED_BY_KOPF: Final = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)
"""The kinds of Tonnage; reflectors watch all others."""

DYNAMIC_RESOURCES: Final = (
    DEVICE_CLASSES,
    RESOURCE_CLAIMS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_SLICES,
)
"""Kinds of Dynamic Resource Allocation. ResourceSlices and DeviceClasses are cluster-scoped, so
with a fleet file none of the kinds is read."""

OPTIONAL: Final = (
    POD_DISRUPTION_BUDGETS,
    RESOURCE_QUOTAS,
    LIMIT_RANGES,
    NAMESPACES,
    LEADER_WORKER_SETS,
    JOBS,
    COMPUTE_DOMAINS,
    *DYNAMIC_RESOURCES,
)
"""Watched kinds that the operator runs without, where it may not list them or the cluster lacks
them."""

WATCHED: Final = (*WATCHED_BY_KOPF, DEPLOYMENTS, SERVICES, PODS, *OPTIONAL, NODES)
"""In the order of their lists: ResourceSlices and Nodes come after what holds GPUs, so that each of
thousands of nodes changes once or twice."""

PARTS: Final = dict.fromkeys((NODES, PODS, RESOURCE_SLICES, RESOURCE_CLAIMS), ObjectParts.PARTIAL)
"""How much of each object is read; full objects for all other kinds."""

_CHILDREN: Final = (
    DEPLOYMENTS,
    LEADER_WORKER_SETS,
    SERVICES,
    RESOURCE_CLAIM_TEMPLATES,
    COMPUTE_DOMAINS,
    JOBS,
)

_SHARDED: Final = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS, NODES, *_CHILDREN)
"""Kinds selected by shard. Pods are not: those of every shard take GPUs. Nor is
what users and administrators write: it bears no label of a shard."""

_RUNNING: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""A finished pod takes no GPU."""


@dataclass(frozen=True, slots=True)
class Scope:
    """No namespaces means all. With a fleet file nothing cluster-scoped is read or written.
    `compute_domains`: the role of the operator has a rule for them, which is not in the base."""

    namespaces: tuple[str, ...] = ()
    fleet_file: FleetFile | None = None
    shard: Shard = UNNAMED_SHARD
    compute_domains: bool = False

    @property
    def watched_by_kopf(self) -> tuple[Kind, ...]:
        """The kinds that kopf watches."""
        return tuple(kind for kind in WATCHED_BY_KOPF if self._includes(kind))

    def selections(self, kinds: Iterable[Kind] = WATCHED) -> tuple[Selection, ...]:
        """The selections to list of these kinds: one per namespace for a namespaced kind."""
        return tuple(
            Selection(
                kind,
                namespace,
                select_labels_of(kind, self.shard),
                fields=_RUNNING if kind == PODS else "",
            )
            for kind in kinds
            if self._includes(kind)
            for namespace in self._namespaces_of(kind)
        )

    def _namespaces_of(self, kind: Kind) -> tuple[str | None, ...]:
        """Claims of every namespace hold GPUs, as pods do."""
        if not kind.namespaced or kind == RESOURCE_CLAIMS:
            return (None,)
        return self.namespaces or (None,)

    def _includes(self, kind: Kind) -> bool:
        if kind == COMPUTE_DOMAINS:
            return self.compute_domains
        is_cluster_wide = not kind.namespaced or kind in DYNAMIC_RESOURCES
        return not is_cluster_wide or self.fleet_file is None


def select_labels_of(kind: Kind, shard: Shard) -> Labels:
    """The labels that select objects of a kind: the shard's, and for children the operator's."""
    own = {LABEL_MANAGED_BY: MANAGED_BY} if kind in _CHILDREN else {}
    return {**own, **(shard.labels if kind in _SHARDED else {})}


def build_scope(settings: Settings, read: ReadFleetFile) -> Scope:
    """Build the scope from the settings."""
    path = settings.fleet_file
    file = FleetFile(path, read) if path is not None else None
    shard = Shard(settings.shard)
    return Scope(settings.namespaces, file, shard, settings.compute_domains)
