"""ResourceSlices and the claims on their devices, by node, kept event by event.

A device is held once, however many claims share it: by the first of them by uid. A whole GPU is
held as well while a claim holds a device that excludes it, a partition of the same GPU.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tonnage.catalog.dra_drivers import load_dra_drivers
from tonnage.fleet.alignment import Split, split_of
from tonnage.fleet.dra.published import DevicePool, publish, whole_gpus, with_published
from tonnage.fleet.model import Node
from tonnage.fleet.resource_slices import (
    AllocatedClaim,
    Device,
    DeviceID,
    PoolID,
    ResourceSlice,
)

_Key = TypeVar("_Key")
_Name = TypeVar("_Name")


@dataclass(slots=True)
class Held:
    """GPUs that a claim holds on a node: usable ones by the resource that stands for them, and how
    many tainted ones, which the node does not offer."""

    usable: dict[str, int] = field(default_factory=dict)
    tainted: int = 0


class Allocations:
    """What drivers publish and claims hold. A change returns the nodes that it concerns."""

    def __init__(self) -> None:
        self._slices: dict[str, ResourceSlice] = {}
        self._pools: dict[PoolID, DevicePool] = {}
        self._pools_on: dict[str, tuple[PoolID, ...]] = {}
        self._claims: dict[str, AllocatedClaim] = {}
        self._claims_on: dict[PoolID, tuple[str, ...]] = {}
        self._claims_of: dict[str, tuple[str, ...]] = {}
        self._classes: frozenset[str] | None = None

    @property
    def slices(self) -> Iterable[ResourceSlice]:
        """The ResourceSlices by name."""
        return (one for _, one in sorted(self._slices.items()))

    @property
    def claims(self) -> Iterable[AllocatedClaim]:
        """The allocated claims by uid."""
        return (one for _, one in sorted(self._claims.items()))

    @property
    def classes(self) -> frozenset[str] | None:
        """The names of the DeviceClasses; None where they are unknown."""
        return self._classes

    def put_slice(self, one: ResourceSlice) -> set[str]:
        """Add or update a ResourceSlice."""
        before = self._slices.get(one.name)
        if before == one:
            return set()
        nodes = self.remove_slice(one.name)
        self._slices[one.name] = one
        pool = self._pools.get(one.pool_id)
        return nodes | self._set_pool(one.pool_id, (*(pool.slices if pool else ()), one))

    def remove_slice(self, name: str) -> set[str]:
        """Remove a ResourceSlice that is gone."""
        one = self._slices.pop(name, None)
        if one is None:
            return set()
        others = (each for each in self._pools[one.pool_id].slices if each.name != name)
        return self._set_pool(one.pool_id, tuple(others))

    def put_claim(self, claim: AllocatedClaim) -> set[str]:
        """Add or update a claim that holds devices."""
        if self._claims.get(claim.uid) == claim:
            return set()
        nodes = self.remove_claim(claim.uid)
        self._claims[claim.uid] = claim
        for pool_id in claim.pools:
            _add(self._claims_on, pool_id, claim.uid)
        for pod in claim.pods:
            _add(self._claims_of, pod, claim.uid)
        return nodes | self._nodes_of(claim)

    def remove_claim(self, uid: str) -> set[str]:
        """Remove a claim that is gone or holds no device any more."""
        claim = self._claims.pop(uid, None)
        if claim is None:
            return set()
        for pool_id in claim.pools:
            _remove(self._claims_on, pool_id, uid)
        for pod in claim.pods:
            _remove(self._claims_of, pod, uid)
        return self._nodes_of(claim)

    def set_classes(self, names: Iterable[str] | None) -> set[str]:
        """Replace the names of the DeviceClasses; None where they are unknown."""
        before = self._missing_classes()
        self._classes = None if names is None else frozenset(names)
        changed = before ^ self._missing_classes()
        return {
            node
            for pool in self._pools.values()
            if pool.driver.device_class in changed
            for node in pool.nodes
        }

    def _missing_classes(self) -> frozenset[str]:
        """DeviceClasses of drivers that are known not to exist."""
        if self._classes is None:
            return frozenset()
        classes = {driver.device_class for driver in load_dra_drivers().drivers}
        return frozenset(classes - self._classes)

    def with_gpus(self, node: Node) -> Node:
        """The node with the GPUs that drivers publish of it."""
        pools = self._pools_of(node.name)
        return with_published(node, publish(node.name, pools, self._classes)) if pools else node

    def is_published(self, node: str) -> bool:
        """Whether ResourceSlices list devices of the node."""
        return node in self._pools_on

    def nodes_of_pod(self, uid: str) -> set[str]:
        """The nodes with devices that claims hold for a pod."""
        return {node for claim in self.claims_of_pod(uid) for node in self._nodes_of(claim)}

    def claim(self, uid: str) -> AllocatedClaim | None:
        """The claim with this uid; None where none holds devices."""
        return self._claims.get(uid)

    def claims_of_pod(self, uid: str) -> list[AllocatedClaim]:
        """The claims that hold devices for a pod."""
        return [self._claims[claim] for claim in self._claims_of.get(uid, ())]

    def count_unlisted(self, claim: AllocatedClaim) -> int:
        """Devices that a claim holds and no current ResourceSlice lists: the driver has withdrawn
        them, for example as unhealthy, and the claim keeps them until its pods end."""
        return len({device for device in claim.devices if self._node_of(device) is None})

    def held_on(self, node: str) -> Mapping[AllocatedClaim, Held]:
        """GPUs of a node that each claim holds."""
        drivers = load_dra_drivers()
        gpus = whole_gpus(node, self._pools_of(node))
        held: dict[AllocatedClaim, Held] = {}
        for claim, gpu in self._hold(node, dict(gpus)):
            of_claim = held.setdefault(claim, Held())
            if gpus[gpu].taints:
                of_claim.tainted += 1
                continue
            resource = drivers.resource_of(drivers.by_name[gpu[0]])
            of_claim.usable[resource] = of_claim.usable.get(resource, 0) + 1
        return held

    def free_split(self, node: str, attribute: str, without: Collection[str] = ()) -> Split:
        """The free GPUs of a node by the values of an attribute; those without a value are each by
        themselves. What claims hold for the pods `without` alone, by uid, counts as free."""
        free = whole_gpus(node, self._pools_of(node))
        for _ in self._hold(node, free, frozenset(without)):
            pass
        usable = (device for device in free.values() if not device.taints)
        values = ((device.attribute(attribute), device) for device in usable)
        return split_of(
            Counter(device.name if value is None else value for value, device in values)
        )

    def _hold(
        self, node: str, free: dict[DeviceID, Device], without: frozenset[str] = frozenset()
    ) -> Iterator[tuple[AllocatedClaim, DeviceID]]:
        """Take each GPU that a claim holds from the free ones, and yield it."""
        pools = self._pools_of(node)
        devices = {
            (*pool.pool_id, device.name): device
            for pool in pools
            for device in pool.devices_of(node)
        }
        uids = sorted({uid for pool in pools for uid in self._claims_on.get(pool.pool_id, ())})
        for claim in (self._claims[uid] for uid in uids):
            if claim.pods and without.issuperset(claim.pods):
                continue
            for device_id in claim.devices:
                for gpu in _excluded(device_id, devices, free):
                    del free[gpu]
                    yield claim, gpu

    def _set_pool(self, pool_id: PoolID, slices: tuple[ResourceSlice, ...]) -> set[str]:
        """Replace the pool's ResourceSlices; return its nodes, before and after."""
        before = self._pools.pop(pool_id, None)
        affected = set(before.nodes) if before else set()
        for node in affected:
            _remove(self._pools_on, node, pool_id)
        if slices:
            pool = self._pools[pool_id] = DevicePool.of(slices)
            for node in pool.nodes:
                _add(self._pools_on, node, pool_id)
            affected |= pool.nodes
        return affected

    def _pools_of(self, node: str) -> list[DevicePool]:
        return [self._pools[pool_id] for pool_id in sorted(self._pools_on.get(node, ()))]

    def _nodes_of(self, claim: AllocatedClaim) -> set[str]:
        nodes = map(self._node_of, claim.devices)
        return {node for node in nodes if node is not None}

    def _node_of(self, device: DeviceID) -> str | None:
        pool = self._pools.get(device[:2])
        return pool.node_of(device[2]) if pool else None


def _add(index: dict[_Key, tuple[_Name, ...]], key: _Key, name: _Name) -> None:
    """Add to an index whose entries are mostly of one name: a tuple takes a quarter of a set."""
    names = index.get(key, ())
    if name not in names:
        index[key] = (*names, name)


def _remove(index: dict[_Key, tuple[_Name, ...]], key: _Key, name: _Name) -> None:
    names = tuple(each for each in index.pop(key, ()) if each != name)
    if names:
        index[key] = names


def _excluded(
    device_id: DeviceID, devices: Mapping[DeviceID, Device], free: Mapping[DeviceID, Device]
) -> list[DeviceID]:
    """The free GPUs that cannot be allocated while this device is: itself, and the GPU that it
    shares counters with."""
    device = devices.get(device_id)
    shared_sets = device.counter_sets if device else frozenset()
    return [
        gpu
        for gpu, other in free.items()
        if gpu == device_id or (gpu[:2] == device_id[:2] and bool(shared_sets & other.counter_sets))
    ]
