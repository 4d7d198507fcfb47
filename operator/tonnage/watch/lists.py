"""What lists put right: missed deletions of the fleet, missed events of any InferenceDeployment."""

from collections.abc import Callable, Mapping
from typing import Protocol

from tonnage.fleet.pod import read_gpu_pod
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.key_schedule import Urgency
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.mappers import keys_for


class Lister(Protocol):
    """The one verb needed here."""

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        labels: Mapping[str, str] | None = None,
        where: Callable[[Object], object] | None = None,
    ) -> list[Object]:
        """Read all objects live, keeping those for which `where` is true."""
        ...


async def relist_fleet(api: Lister, fleet: FleetState) -> None:
    """Make the cache what the cluster is. Raises ApiError."""
    since = fleet.mark_nodes()
    fleet.replace_nodes(await api.list(NODES), since)
    since = fleet.mark_pools()
    fleet.replace_pools(await api.list(ACCELERATOR_POOLS), since)
    since = fleet.mark_pods()
    fleet.replace_pods(await api.list(PODS, where=read_gpu_pod), since)


async def resync(api: Lister, fleet: FleetState, queue: WorkQueue[Key]) -> None:
    """Look at every InferenceDeployment again, also at deleted ones that still hold something.

    Raises ApiError.
    """
    for obj in await api.list(INFERENCE_DEPLOYMENTS):
        for key in keys_for(INFERENCE_DEPLOYMENTS, obj):
            queue.add(key, Urgency.RESYNC)
    for key in sorted(fleet.known_keys()):
        queue.add(key, Urgency.RESYNC)
