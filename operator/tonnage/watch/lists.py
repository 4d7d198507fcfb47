"""What lists put right: missed deletions of the fleet, missed events of any InferenceDeployment."""

from collections import defaultdict
from collections.abc import Callable

from tonnage.api.names import LABEL_MANAGED_BY, MANAGED_BY
from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KubeApi, Object
from tonnage.reconcile.key import Key
from tonnage.reconcile.looks import Looks
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.key_schedule import Urgency
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.runtime.workqueue import WorkQueue
from tonnage.watch.mappers import keys_for, version_of


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


async def relist_fleet(api: KubeApi, fleet: FleetState, looks: Looks) -> None:
    """Make the cache what the cluster is. Raises ApiError."""
    nodes = fleet.begin_list(NODES)
    await api.each(NODES, nodes.take)
    nodes.end()
    pools = fleet.begin_list(ACCELERATOR_POOLS)
    for pool in await api.list(ACCELERATOR_POOLS):
        pools.take(pool)
    pools.end()
    pods, versions = fleet.begin_list(PODS), Versions(PODS)

    def take(pod: Object) -> None:
        pods.take(pod)
        versions.note(pod)

    await api.each(PODS, take)
    pods.end()
    versions.tell(looks)


async def resync(
    api: KubeApi,
    fleet: FleetState,
    queue: WorkQueue[Key],
    specs: SeenObjects[int],
    looks: Looks,
) -> None:
    """Look at every InferenceDeployment again, also at deleted ones that still hold something.

    What was read of one before holds no more where its children are other ones now, whether or
    not an event told so. Raises ApiError.
    """
    for kind in (DEPLOYMENTS, SERVICES):
        versions = Versions(kind)
        # None of them is kept: what one page held is noted before the next is asked for.
        await api.list(kind, labels={LABEL_MANAGED_BY: MANAGED_BY}, where=versions.note)
        versions.tell(looks)
    versions, since = Versions(INFERENCE_DEPLOYMENTS), specs.mark()
    generations: list[tuple[str, str, int]] = []
    keys: set[Key] = set()

    def note(obj: Object) -> None:
        versions.note(obj)
        generations.append(generation_of(obj))
        keys.update(keys_for(INFERENCE_DEPLOYMENTS, obj))

    await api.list(INFERENCE_DEPLOYMENTS, where=note)
    specs.replace(generations, since)
    versions.tell(looks)
    for key in sorted(keys):
        queue.add(key, Urgency.RESYNC)
    for key in sorted(fleet.known_keys()):
        queue.add(key, Urgency.RESYNC)


class Versions:
    """Those of all objects of a kind that a list shows, by whose they are."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._found: defaultdict[Key, dict[str, str]] = defaultdict(dict)

    def note(self, obj: Object) -> None:
        """The list shows this one."""
        for key in self._keys(obj):
            uid, version = version_of(None, obj)
            self._found[key][uid] = str(version)

    def tell(self, looks: Looks) -> None:
        """The list is at its end."""
        looks.listed(self._kind, self._found)

    def _keys(self, obj: Object) -> set[Key]:
        if self._kind != INFERENCE_DEPLOYMENTS:
            return keys_for(self._kind, obj)
        # The long endpoint of another one, too: that is read live at each look.
        return keys_for(self._kind, {"metadata": {**obj["metadata"], "ownerReferences": []}})
