"""The GPUs that a node has by the ResourceSlices of its drivers.

Of a pool of devices only the highest generation counts, and only once all of its ResourceSlices
exist: as the scheduler reads them. A driver that updates its pool deletes the older ones later.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final

from tonnage.catalog.dra_drivers import PCIE_ROOT, DraDriver, load_dra_drivers
from tonnage.catalog.model import Vendor
from tonnage.catalog.vllm.images import CudaVersion, parse_cuda_version
from tonnage.fleet.devices.resources import shared_counts, vendor_of
from tonnage.fleet.model import DeviceFact, Node, PublishedGPUs
from tonnage.fleet.resource_slices import Device, DeviceID, PoolID, ResourceSlice

_VERSION: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})(?:\.[0-9A-Za-z.+-]{0,60})?")
_MAX_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class DevicePool:
    """The ResourceSlices of one pool of devices, of all generations. `current` are those of the
    highest generation."""

    pool_id: PoolID
    slices: tuple[ResourceSlice, ...]
    current: tuple[ResourceSlice, ...]

    @classmethod
    def of(cls, slices: Iterable[ResourceSlice]) -> "DevicePool":
        """The pool of some ResourceSlices, at least one, which all describe it."""
        by_name = tuple(sorted(slices, key=lambda one: one.name))
        newest = max(one.generation for one in by_name)
        current = tuple(one for one in by_name if one.generation == newest)
        return cls(by_name[0].pool_id, by_name, current)

    @property
    def driver(self) -> DraDriver:
        """The driver that publishes it."""
        return load_dra_drivers().by_name[self.pool_id[0]]

    def devices_of(self, node: str) -> tuple[Device, ...]:
        """The current devices of a node."""
        if len(self.current) == 1:
            return self.current[0].devices_of(node)  # the same object as of equal nodes
        return tuple(device for one in self.current for device in one.devices_of(node))

    def node_of(self, device_name: str) -> str | None:
        """The node of a current device; None where it has none, or is not listed."""
        return next(
            (
                device.node or one.node
                for one in self.current
                for device in one.devices
                if device.name == device_name
            ),
            None,
        )

    @property
    def nodes(self) -> frozenset[str]:
        """The nodes of its current devices, and those that its ResourceSlices name."""
        return frozenset(node for one in self.current for node in one.nodes)

    def has_devices_of(self, node: str) -> bool:
        """Whether the pool lists a device of the node. The driver of a node without GPUs may
        publish an empty pool."""
        return bool(self.devices_of(node))

    @property
    def problem(self) -> str | None:
        """Why the scheduler allocates none of the devices; None where it may."""
        wanted, generation = self.current[0].slices, self.current[0].generation
        if any(one.slices != wanted for one in self.current) or len(self.current) > wanted:
            counts = sorted({one.slices for one in self.current})
            return (
                f"ResourceSlices of {self._title} contradict: {len(self.current)} of generation "
                f"{generation}, which state resourceSliceCount {' and '.join(map(str, counts))}"
            )
        if len(self.current) < wanted:
            return (
                f"ResourceSlices of {self._title} are incomplete: {len(self.current)} of {wanted} "
                f"of generation {generation} exist"
            )
        names = [device.name for one in self.current for device in one.devices]
        if len(set(names)) < len(names):
            twice = min(name for name, count in Counter(names).items() if count > 1)
            return f"ResourceSlices of {self._title} list device {twice} twice"
        return None

    @property
    def outdated(self) -> str | None:
        """A note on ResourceSlices of older generations."""
        if len(self.current) == len(self.slices):
            return None
        older = sorted({one.generation for one in self.slices} - {self.current[0].generation})
        return (
            f"ResourceSlices of {self._title} of generation {', '.join(map(str, older))} do not "
            f"count: the newest is {self.current[0].generation}"
        )

    @property
    def _title(self) -> str:
        return f"{self.pool_id[0]}, pool {self.pool_id[1]}"


@dataclass(frozen=True, slots=True)
class _Sorted:
    """Devices of one driver on one node: whole GPUs, those of them that are usable, and why the
    others are not."""

    whole: tuple[Device, ...]
    usable: tuple[Device, ...]
    notes: tuple[str, ...]


def publish(
    node: str, pools: Iterable[DevicePool], classes: Collection[str] | None
) -> tuple[PublishedGPUs, ...]:
    """Return the GPUs of a node by driver; `classes` are the names of the DeviceClasses, None
    where they are unknown."""
    by_driver: dict[str, list[DevicePool]] = {}
    for pool in pools:
        by_driver.setdefault(pool.driver.driver, []).append(pool)
    return tuple(
        _publish(node, of_driver[0].driver, of_driver, classes)
        for _, of_driver in sorted(by_driver.items())
        if any(pool.problem or pool.has_devices_of(node) for pool in of_driver)
    )


def whole_gpus(node: str, pools: Iterable[DevicePool]) -> dict[DeviceID, Device]:
    """Return the devices of a node that are whole GPUs, with taints or without."""
    gpus: dict[DeviceID, Device] = {}
    for pool in pools:
        devices = _sort_out(pool.driver.driver, pool.devices_of(node)).whole
        gpus.update({(*pool.pool_id, device.name): device for device in devices})
    return gpus


def with_published(node: Node, published: tuple[PublishedGPUs, ...]) -> Node:
    """The node with the GPUs of its ResourceSlices in place of those of the same vendor's device
    plugin: one GPU is never counted twice."""
    if not published:
        return node
    vendors = {vendor_of(one.resource) for one in published if one.total}
    noted = tuple(_with_plugin_note(one, node) for one in published)
    return replace(
        node,
        capacity=_merged(node.capacity, vendors, {one.resource: one.total for one in published}),
        allocatable=_merged(
            node.allocatable, vendors, {one.resource: one.usable for one in published}
        ),
        published=noted,
    )


def _with_plugin_note(published: PublishedGPUs, node: Node) -> PublishedGPUs:
    """Name the GPUs that a device plugin offers in addition."""
    vendor = vendor_of(published.resource)
    offered = {
        name: count
        for name, count in node.allocatable.items()
        if count and vendor_of(name) is vendor and name != published.resource
    }
    if not offered or not published.total:
        return published
    listed = ", ".join(f"{name} ({count})" for name, count in sorted(offered.items()))
    note = f"{listed} of a device plugin is left out: the ResourceSlices count"
    return replace(published, notes=(*published.notes, note))


def _merged(
    counts: Mapping[str, int], vendors: Collection[Vendor], published: Mapping[str, int]
) -> dict[str, int]:
    """The counts of a node without those of some vendors, and with those that are published."""
    others = {name: count for name, count in counts.items() if vendor_of(name) not in vendors}
    return shared_counts((*others.items(), *published.items()))


def _publish(
    node: str,
    driver: DraDriver,
    pools: Sequence[DevicePool],
    classes: Collection[str] | None,
) -> PublishedGPUs:
    devices = pools[0].devices_of(node)
    for pool in pools[1:]:
        devices += pool.devices_of(node)
    published = _read_devices(driver.driver, devices)
    outdated = [note for pool in pools if (note := pool.outdated) is not None]
    if outdated:
        published = replace(published, notes=(*published.notes, *outdated))
    problems = [problem for pool in pools if (problem := pool.problem) is not None]
    if published.refused is not None:
        refused = "; ".join([*problems, published.refused])
        return replace(published, refused=refused) if problems else published
    unusable = problems[0] if problems else None
    if unusable is None and classes is not None and driver.device_class not in classes:
        unusable = f"DeviceClass {driver.device_class} does not exist: install {driver.driver}"
    return replace(published, usable=0, unusable=unusable) if unusable else published


@lru_cache(maxsize=1024)
def _read_devices(driver_name: str, devices: tuple[Device, ...]) -> PublishedGPUs:
    """Read what the devices of one node say of its GPUs. Thousands of nodes have equal ones."""
    driver = load_dra_drivers().by_name[driver_name]
    resource = load_dra_drivers().resource_of(driver)
    sorted_out = _sort_out(driver_name, devices)
    published = PublishedGPUs(driver_name, resource, notes=sorted_out.notes)
    if not sorted_out.whole:
        listed = "; ".join(sorted_out.notes) or "they list no device"
        refused = f"ResourceSlices of {driver_name} list no whole GPU: {listed}"
        return replace(published, refused=refused)
    facts, refused_facts = _agree_facts(driver, sorted_out.whole)
    return replace(
        published,
        facts=facts,
        refused=refused_facts,
        total=len(sorted_out.whole),
        usable=len(sorted_out.usable),
        unusable=None if sorted_out.usable else "; ".join(sorted_out.notes),
        arch=_arch(driver, sorted_out.whole[0]),
        cuda=_cuda(driver, sorted_out.whole[0]),
        aligned=_aligned(driver, sorted_out.usable),
    )


@lru_cache(maxsize=1024)
def _sort_out(driver_name: str, devices: tuple[Device, ...]) -> _Sorted:
    """Separate the GPUs of a node from what does not count, with the reason."""
    driver = load_dra_drivers().by_name[driver_name]
    whole: list[Device] = []
    usable: list[Device] = []
    left_out: dict[str, list[str]] = {}
    for device in sorted(devices, key=lambda device: device.name):
        kind = device.attribute(driver.qualify("type"))
        if kind != driver.whole_gpu:
            left_out.setdefault(_why_no_gpu(driver, kind), []).append(device.name)
            continue
        whole.append(device)
        if device.taints:
            left_out.setdefault(f"device taint {device.taints[0]}", []).append(device.name)
        else:
            usable.append(device)
    notes = tuple(f"{_listed(names)}: {reason}" for reason, names in left_out.items())
    return _Sorted(tuple(whole), tuple(usable), notes)


def _why_no_gpu(driver: DraDriver, kind: object) -> str:
    what = driver.other_types.get(str(kind)) if kind is not None else None
    stated = "states no type" if kind is None else f"type={kind}"
    return f"{stated}, {what}" if what else f"{stated}, expected {driver.whole_gpu}"


def _listed(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MAX_NAMED])
    rest = len(names) - _MAX_NAMED
    return f"{shown} and {rest} more" if rest > 0 else shown


def _agree_facts(
    driver: DraDriver, devices: Sequence[Device]
) -> tuple[tuple[DeviceFact, ...], str | None]:
    """What all devices state alike; and, where two differ in that, why nothing is planned."""
    agreed: dict[str, tuple[str, DeviceFact]] = {}
    for device in devices:
        for fact in _facts_of(driver, device):
            first, known = agreed.setdefault(fact.attribute, (device.name, fact))
            if known.value != fact.value:
                return (), (
                    f"GPUs of one node differ: {known} ({first}), {fact} ({device.name}); "
                    "keep one kind of GPU on a node"
                )
    return tuple(fact for _, fact in agreed.values()), None


def _facts_of(driver: DraDriver, device: Device) -> Iterable[DeviceFact]:
    for one in driver.attributes:
        name = driver.qualify(one.attribute)
        stated = device.attribute(name)
        value = one.label_value(stated) if isinstance(stated, str) else None
        if value is not None:
            yield DeviceFact(one.label, value, name, str(stated))
    for capacity in driver.capacities:
        name = driver.qualify(capacity.capacity)
        amount = device.capacity(name)
        value = capacity.label_value(amount) if amount is not None else None
        if value is not None:
            yield DeviceFact(capacity.label, value, name, value)


def _arch(driver: DraDriver, device: Device) -> str | None:
    """The compute capability as the catalogue has it: 9.0.0 is sm_90."""
    stated = device.attribute(driver.qualify(driver.arch)) if driver.arch else None
    match = _VERSION.fullmatch(stated) if isinstance(stated, str) else None
    return f"sm_{match[1]}{match[2]}" if match else None


def _cuda(driver: DraDriver, device: Device) -> CudaVersion | None:
    """The newest CUDA version that the kernel driver supports."""
    stated = device.attribute(driver.qualify(driver.cuda)) if driver.cuda else None
    match = _VERSION.fullmatch(stated) if isinstance(stated, str) else None
    return parse_cuda_version(f"{match[1]}.{match[2]}") if match else None


def _aligned(driver: DraDriver, devices: Sequence[Device]) -> tuple[tuple[str, int], ...]:
    """The most devices that share one value of each attribute that constraints match."""
    aligned = []
    for attribute in (driver.numa_node, PCIE_ROOT):
        values = Counter(device.attribute(attribute) for device in devices)
        del values[None]
        if values:
            aligned.append((attribute, max(values.values())))
    return tuple(aligned)
