"""ResourceSlices, ResourceClaims and DeviceClasses as frozen data.

Source: kubernetes/api@kubernetes-1.36.3 resource/v1/types.go.
"""

from dataclasses import dataclass

AttributeValue = str | int

DeviceID = tuple[str, str, str]
"""Driver, pool and name of a device: unique in a cluster."""

PoolID = tuple[str, str]
"""Driver and name of a pool of devices."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device of a ResourceSlice, with the attributes and capacities that its driver states it by.
    Their names have their domain.

    `node` is its node where devices of one slice are on several. `taints` are the keys of those
    that keep claims away, `counter_sets` what it shares with devices that exclude it, for example
    the partitions of the same GPU.
    """

    name: str
    node: str | None = None
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    capacities: tuple[tuple[str, int], ...] = ()
    taints: tuple[str, ...] = ()
    counter_sets: frozenset[str] = frozenset()

    def attribute(self, name: str) -> AttributeValue | None:
        """The value of an attribute; None where the device does not state it."""
        return next((value for stated, value in self.attributes if stated == name), None)

    def capacity(self, name: str) -> int | None:
        """The amount of a capacity; None where the device does not state it."""
        return next((amount for stated, amount in self.capacities if stated == name), None)


@dataclass(frozen=True, slots=True)
class ResourceSlice:
    """A ResourceSlice: some of the devices of a pool in one generation, which has `slices`
    ResourceSlices. `node` is None where each device names its own."""

    name: str
    driver: str
    pool: str
    generation: int
    slices: int
    node: str | None
    devices: tuple[Device, ...]

    def devices_of(self, node: str) -> tuple[Device, ...]:
        """Its devices on a node."""
        if self.node == node and all(device.node is None for device in self.devices):
            return self.devices
        return tuple(one for one in self.devices if (one.node or self.node) == node)

    @property
    def pool_id(self) -> PoolID:
        """The pool that it describes."""
        return self.driver, self.pool

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of its devices."""
        named = {device.node for device in self.devices} | {self.node}
        return frozenset(node for node in named if node is not None)


@dataclass(frozen=True, slots=True)
class AllocatedClaim:
    """A ResourceClaim that holds devices. `pods` are the uids of those that use it."""

    uid: str
    namespace: str
    name: str
    devices: tuple[DeviceID, ...]
    pods: tuple[str, ...] = ()

    @property
    def pools(self) -> frozenset[PoolID]:
        """The pools of its devices."""
        return frozenset(device[:2] for device in self.devices)
