"""How much of the cluster is looked at: all of it, some namespaces, a file for its fleet."""

from dataclasses import dataclass

from tonnage.kube.forwarding import NamespacedKubeApi
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS
from tonnage.kube.protocol import Kind, KubeApi
from tonnage.runtime.settings import Settings
from tonnage.watch.application import WATCHED
from tonnage.watch.fleet_file import FleetFile, FleetFileKubeApi, ReadFleetFile


@dataclass(frozen=True, slots=True)
class Scope:
    """No namespaces mean all; with a fleet file nothing cluster-scoped is asked for or written."""

    namespaces: tuple[str, ...] = ()
    fleet_file: FleetFile | None = None

    @property
    def watched(self) -> tuple[Kind, ...]:
        """The kinds whose events are needed."""
        return tuple(kind for kind in WATCHED if self._is_asked_for(kind))

    @property
    def defined(self) -> tuple[Kind, ...]:
        """The kinds that the cluster must have a definition of."""
        ours = (INFERENCE_DEPLOYMENTS, ACCELERATOR_POOLS)
        return tuple(kind for kind in ours if self._is_asked_for(kind))

    def limit(self, api: KubeApi) -> KubeApi:
        """The API server as far as it is looked at; the loop knows of no limit."""
        if self.namespaces:
            api = NamespacedKubeApi(api, self.namespaces)
        return api if self.fleet_file is None else FleetFileKubeApi(api, self.fleet_file)

    def _is_asked_for(self, kind: Kind) -> bool:
        return kind.namespaced or self.fleet_file is None


def scope_of(settings: Settings, read: ReadFleetFile) -> Scope:
    """The scope that the settings ask for."""
    path = settings.fleet_file
    return Scope(settings.namespaces, FleetFile(path, read) if path is not None else None)
