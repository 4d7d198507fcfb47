"""How much of the cluster is looked at: a shard, some namespaces, a file for its fleet."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from tonnage.api.shard import UNNAMED_SHARD, Shard
from tonnage.kube.forwarding import NamespacedKubeApi, ShardKubeApi
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KubeApi
from tonnage.kube.watching import Selection
from tonnage.runtime.settings import Settings
from tonnage.watch.application import WATCHED_BY_KOPF, label_selector
from tonnage.watch.fleet_file import FleetFile, FleetFileKubeApi, ReadFleetFile

FOLLOWED: Final = (
    Selection(DEPLOYMENTS),
    Selection(SERVICES),
    # Pods of everybody count, since they take GPUs; finished ones take none.
    Selection(PODS, fields="status.phase!=Succeeded,status.phase!=Failed"),
    Selection(NODES),
)
"""What followers watch, in the whole cluster and of all shards."""

WATCHED: Final = (*WATCHED_BY_KOPF, *(each.kind for each in FOLLOWED))


@dataclass(frozen=True, slots=True)
class Scope:
    """No namespaces mean all; with a fleet file nothing cluster-scoped is asked for or written."""

    namespaces: tuple[str, ...] = ()
    fleet_file: FleetFile | None = None
    shard: Shard = UNNAMED_SHARD

    @property
    def watched(self) -> tuple[Kind, ...]:
        """The kinds whose events are needed."""
        return self._asked_for(WATCHED)

    @property
    def watched_by_kopf(self) -> tuple[Kind, ...]:
        """Those of them that kopf tells of."""
        return self._asked_for(WATCHED_BY_KOPF)

    @property
    def followed(self) -> tuple[Selection, ...]:
        """What followers tell of: a namespaced kind has one for each namespace."""
        wanted = [each for each in FOLLOWED if self._is_asked_for(each.kind)]
        return tuple(
            replace(each, namespace=namespace, labels=label_selector(each.kind, self.shard))
            for each in wanted
            for namespace in (self.namespaces if each.kind.namespaced else ()) or (None,)
        )

    @property
    def defined(self) -> tuple[Kind, ...]:
        """The kinds that the cluster must have a definition of."""
        return self._asked_for((INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS))

    def limit(self, api: KubeApi) -> KubeApi:
        """The API server as far as it is looked at; the loop knows of no limit."""
        if self.namespaces:
            api = NamespacedKubeApi(api, self.namespaces)
        if self.fleet_file is not None:
            api = FleetFileKubeApi(api, self.fleet_file)
        return ShardKubeApi(api, self.shard)

    def _asked_for(self, kinds: Iterable[Kind]) -> tuple[Kind, ...]:
        return tuple(kind for kind in kinds if self._is_asked_for(kind))

    def _is_asked_for(self, kind: Kind) -> bool:
        return kind.namespaced or self.fleet_file is None


def scope_of(settings: Settings, read: ReadFleetFile) -> Scope:
    """The scope that the settings ask for."""
    path = settings.fleet_file
    file = FleetFile(path, read) if path is not None else None
    return Scope(settings.namespaces, file, Shard(settings.shard))
