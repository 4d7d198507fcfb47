"""What lists put right: missed deletions of the fleet, missed events of any InferenceDeployment."""

from collections.abc import Callable

from tonnage.fleet.pod import read_gpu_pod
from tonnage.kube.kinds import ACCELERATOR_POOLS, INFERENCE_DEPLOYMENTS, NODES, PODS
from tonnage.kube.protocol import KubeApi, Object
from tonnage.reconcile.key import Key
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.key_schedule import Urgency
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.mappers import keys_for


def seen_specs(add: Callable[[Key], None]) -> SeenObjects[int]:
    """The generations of InferenceDeployments. One that a list does not show any more is looked at
    once more, so that nothing is kept of it where nobody told its end."""

    def look_again(identity: str) -> None:
        add(Key(*identity.split("/")))

    return SeenObjects(lambda *_: None, look_again)


def generation_of(obj: Object) -> tuple[str, str, int]:
    """An object as SeenObjects know it: whose it is, which one, and the generation of its spec."""
    metadata = obj["metadata"]
    identity = f"{metadata['namespace']}/{metadata['name']}"
    return identity, metadata["uid"], metadata.get("generation", 0)


async def relist_fleet(api: KubeApi, fleet: FleetState) -> None:
    """Make the cache what the cluster is. Raises ApiError."""
    since = fleet.mark_nodes()
    fleet.replace_nodes(await api.list(NODES), since)
    since = fleet.mark_pools()
    fleet.replace_pools(await api.list(ACCELERATOR_POOLS), since)
    since = fleet.mark_pods()
    fleet.replace_pods(await api.list(PODS, where=read_gpu_pod), since)


async def resync(
    api: KubeApi, fleet: FleetState, queue: WorkQueue[Key], specs: SeenObjects[int]
) -> None:
    """Look at every InferenceDeployment again, also at deleted ones that still hold something.

    Raises ApiError.
    """
    since = specs.mark()
    objects = await api.list(INFERENCE_DEPLOYMENTS)
    specs.replace(map(generation_of, objects), since)
    for obj in objects:
        for key in keys_for(INFERENCE_DEPLOYMENTS, obj):
            queue.add(key, Urgency.RESYNC)
    for key in sorted(fleet.known_keys()):
        queue.add(key, Urgency.RESYNC)
