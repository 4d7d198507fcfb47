"""What lists put right: missed deletions of the fleet, missed events of any InferenceDeployment."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from typing import Final

from tonnage.kube.kinds import (
    ACCELERATOR_POOLS,
    DEPLOYMENTS,
    INFERENCE_DEPLOYMENTS,
    NODES,
    PODS,
    SERVICES,
)
from tonnage.kube.protocol import Kind, KubeApi, Listing, Object, Parts
from tonnage.reconcile.key import Key
from tonnage.reconcile.listed import OURS, Listed
from tonnage.reconcile.looks import BELONGINGS, Looks
from tonnage.runtime.fleet_state import FleetState
from tonnage.runtime.priority import Priority
from tonnage.runtime.seen_objects import SeenObjects
from tonnage.watch.mappers import keys_for, version_of
from tonnage.watch.resting import RestingObjects

MISSING_WORTH_A_LIST: Final = 50
"""Where one in so many objects has to be read anew, the lists of what belongs to all of them cost
less than four reads of each."""

EVENTS_TAKE_SECONDS: Final = 2.0
"""What a list showed, a watch tells within that time: of the nodes of a large fleet there is always
one whose heartbeat is on its way."""


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
    await _list_news(api, fleet, NODES, lambda _: None)
    pools = fleet.begin_list(ACCELERATOR_POOLS)
    for pool in await api.list(ACCELERATOR_POOLS):
        pools.take(pool)
    pools.end()
    versions = Versions(PODS)
    await _list_news(api, fleet, PODS, versions.note)
    versions.tell(looks)


async def _list_news(
    api: KubeApi, fleet: FleetState, kind: Kind, note: Callable[[Object], None]
) -> None:
    """Make the cache what there is of a kind. Its metadata shows whether that is known already;
    where anything is not, and no event tells of it, all is read. `note` may be told of an object
    twice."""
    if fleet.knows_versions(kind) and await _is_known(api, fleet, kind, note):
        return
    listed = fleet.begin_list(kind)

    def take(obj: Object) -> None:
        note(obj)
        listed.take(obj)

    await api.each(Listing(kind, Parts.LEAN), take)
    listed.end()


async def _is_known(
    api: KubeApi, fleet: FleetState, kind: Kind, note: Callable[[Object], None]
) -> bool:
    """Whether all that there is of a kind is known; what there is no more is forgotten."""
    listed, news = fleet.begin_list(kind), list[Object]()

    def compare(obj: Object) -> None:
        note(obj)
        if not listed.confirm(obj):
            news.append(obj)

    await api.each(Listing(kind, Parts.METADATA), compare)
    if not all(map(listed.is_told, news)):
        await asyncio.sleep(EVENTS_TAKE_SECONDS)
        if not all(map(listed.is_told, news)):
            return False
    listed.end()
    return True


async def resync(
    api: KubeApi,
    fleet: FleetState,
    add: Callable[[Key, Priority], None],
    specs: SeenObjects[int],
    looks: Looks,
    resting: RestingObjects,
) -> None:
    """Look again at every InferenceDeployment of which another look may find anything else than the
    last one did, also at deleted ones that still hold something.

    What was read of one before holds no more where it or its children are other ones now, whether
    or not an event told so. Where many have to be read anew, the lists show it. Raises ApiError.
    """
    looks.begin_all()
    keys, itself = await _list_specs(api, specs)
    missing = {key for key in keys if not looks.knows(key)}
    if len(missing) * MISSING_WORTH_A_LIST > len(keys):
        versions = await _list_all(api, looks, missing.__contains__)
    else:
        versions = {kind: Versions(kind) for kind in (DEPLOYMENTS, SERVICES)}
        for kind, found in versions.items():
            await api.each(Listing(kind, Parts.METADATA, labels=OURS), found.note)
    for found in (itself, *versions.values()):
        found.tell(looks)
    for key in resting.awake(keys | fleet.known_keys()):
        add(key, Priority.RESYNC)


async def _list_specs(api: KubeApi, specs: SeenObjects[int]) -> tuple[set[Key], "Versions"]:
    """The keys of all InferenceDeployments, and their versions."""
    versions, since = Versions(INFERENCE_DEPLOYMENTS), specs.mark()
    generations: dict[str, tuple[str, str, int]] = {}
    keys: set[Key] = set()

    def note(obj: Object) -> None:
        versions.note(obj)
        keys.update(keys_for(INFERENCE_DEPLOYMENTS, obj))
        generation = generation_of(obj)
        generations[generation[0]] = generation

    await api.each(Listing(INFERENCE_DEPLOYMENTS, Parts.METADATA), note)
    specs.replace(generations.values(), since)
    return keys, versions


async def _list_all(
    api: KubeApi, looks: Looks, wanted: Callable[[Key], bool]
) -> dict[Kind, "Versions"]:
    """Make looks at the wanted objects of what lists show; the versions of what belongs to all."""
    versions = {kind: Versions(kind) for kind in (DEPLOYMENTS, SERVICES)}
    listed = Listed(wanted)
    await api.each(
        Listing(INFERENCE_DEPLOYMENTS, Parts.WHOLE), partial(listed.note, INFERENCE_DEPLOYMENTS)
    )
    for kind in BELONGINGS:

        def note(obj: Object, kind: Kind = kind) -> None:
            listed.note(kind, obj)
            if kind in versions:  # pods are listed with the fleet, whosever they are
                versions[kind].note(obj)

        await api.each(Listing(kind, Parts.WHOLE, labels=OURS), note)
    looks.end_all(listed.looks())
    return versions


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
