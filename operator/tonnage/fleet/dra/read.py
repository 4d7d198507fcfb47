"""Reads raw ResourceSlices, ResourceClaims and DeviceClasses, within the limits of their API.

Nothing here raises: what is not as the API server stores it is left out. Devices of other drivers
than those of dra_drivers.yaml are not kept, nor is what distinguishes devices of one kind, such as
a serial number. So thousands of equal nodes share their devices in memory.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from itertools import islice
from operator import itemgetter
from typing import Any, Final, TypeVar

from tonnage.catalog.dra_drivers import DraDriver, load_dra_drivers
from tonnage.fleet.devices.resources import as_mapping, as_sequence, shared
from tonnage.fleet.nodes.amounts import read_amount
from tonnage.fleet.resource_slices import (
    AllocatedClaim,
    AttributeValue,
    Device,
    DeviceID,
    ResourceSlice,
)

# resource/v1/types.go: ResourceSliceMaxDevices, ResourceSliceMaxAttributesAndCapacitiesPerDevice,
# AllocationResultsMaxSize, ResourceClaimReservedForMaxSize, DeviceAttributeMaxValueLength.
_MAX_DEVICES: Final = 128
_MAX_STATED: Final = 32
_MAX_RESULTS: Final = 32
_MAX_PODS: Final = 256
_MAX_VALUE_CHARS: Final = 64
_MAX_NAME_CHARS: Final = 253
_MAX_TAINTS: Final = 16
_MAX_COUNTER_SETS: Final = 8
_MAX_NUMBER: Final = 2**63 - 1

_KEEPS_AWAY: Final = ("NoSchedule", "NoExecute")
_by_name: Final = itemgetter(0)
_VALUE_KINDS: Final = (("string", str), ("version", str), ("int", int))

_Value = TypeVar("_Value", str | int, int)


def read_slice(obj: Mapping[str, Any]) -> ResourceSlice | None:
    """Read a ResourceSlice; None where its driver publishes no GPUs, or its pool is unreadable."""
    spec = as_mapping(obj.get("spec"))
    driver, pool = _name(spec.get("driver")), as_mapping(spec.get("pool"))
    pool_name, generation = _name(pool.get("name")), _number(pool.get("generation"))
    slices, name = _number(pool.get("resourceSliceCount")), _object_name(obj)
    if driver not in load_dra_drivers().by_name or not pool_name or not name:
        return None
    if generation is None or slices is None:
        return None
    per_device = spec.get("perDeviceNodeSelection") is True
    return ResourceSlice(
        name=name,
        driver=shared(driver),
        pool=shared(pool_name),
        generation=generation,
        slices=slices,
        node=None if per_device else _shared_name(spec.get("nodeName")),
        devices=_shared_devices(
            tuple(
                _read_device(as_mapping(device), load_dra_drivers().by_name[driver])
                for device in as_sequence(spec.get("devices"))[:_MAX_DEVICES]
                if _name(as_mapping(device).get("name"))
            )
        ),
    )


def read_claim(obj: Mapping[str, Any]) -> AllocatedClaim | None:
    """Read a ResourceClaim that holds GPUs; None where it is not allocated or holds none. Devices
    that it was given with admin access may be used by others, and are not held."""
    metadata, status = as_mapping(obj.get("metadata")), as_mapping(obj.get("status"))
    results = as_mapping(as_mapping(status.get("allocation")).get("devices")).get("results")
    devices = tuple(
        device
        for result in as_sequence(results)[:_MAX_RESULTS]
        if (device := _read_result(as_mapping(result))) is not None
    )
    name, namespace = _name(metadata.get("name")), _name(metadata.get("namespace")) or "default"
    if not devices or not name:
        return None
    users = (as_mapping(user) for user in as_sequence(status.get("reservedFor"))[:_MAX_PODS])
    return AllocatedClaim(
        uid=_name(metadata.get("uid")) or f"{namespace}/{name}",
        namespace=shared(namespace),
        name=name,
        devices=devices,
        pods=tuple(_name(user.get("uid")) for user in users if user.get("resource") == "pods"),
    )


def read_device_class(obj: Mapping[str, Any]) -> str | None:
    """Read the name of a DeviceClass; None where it has none."""
    return _object_name(obj) or None


@lru_cache(maxsize=1024)
def _shared_devices(devices: tuple[Device, ...]) -> tuple[Device, ...]:
    """Return the same objects for equal devices, which thousands of nodes have."""
    return devices


@lru_cache(maxsize=4096)
def _shared_fact(name: str, value: _Value) -> tuple[str, _Value]:
    """Return the same object for equal facts: devices that differ in one have the others alike."""
    return name, value


def _read_device(device: Mapping[str, Any], driver: DraDriver) -> Device:
    counters = as_sequence(device.get("consumesCounters"))[:_MAX_COUNTER_SETS]
    return Device(
        name=shared(_name(device.get("name"))),
        node=_shared_name(device.get("nodeName")),
        attributes=_read_stated(device.get("attributes"), driver, _read_attribute),
        capacities=_read_stated(device.get("capacity"), driver, _read_capacity),
        taints=tuple(
            _name(taint.get("key"))
            for taint in map(as_mapping, as_sequence(device.get("taints"))[:_MAX_TAINTS])
            if taint.get("effect") in _KEEPS_AWAY
        ),
        counter_sets=frozenset(_name(as_mapping(each).get("counterSet")) for each in counters),
    )


def _read_stated(
    raw: object, driver: DraDriver, read: Callable[[Mapping[str, Any]], _Value | None]
) -> tuple[tuple[str, _Value], ...]:
    """The attributes or capacities that say what a device is, by their full names, in order."""
    names, facts = driver.read_names, []
    for stated, value in islice(as_mapping(raw).items(), _MAX_STATED):
        name = names.get(stated)
        if name is not None and (one := read(as_mapping(value))) is not None:
            facts.append(_shared_fact(name, one))
    facts.sort(key=_by_name)
    return tuple(facts)


def _read_attribute(value: Mapping[str, Any]) -> AttributeValue | None:
    for kind, type_ in _VALUE_KINDS:
        one = value.get(kind)
        if type(one) is type_:
            return one[:_MAX_VALUE_CHARS] if isinstance(one, str) else one
    return None


def _read_capacity(value: Mapping[str, Any]) -> int | None:
    return read_amount(value.get("value"))


def _read_result(result: Mapping[str, Any]) -> DeviceID | None:
    driver, pool, device = (_name(result.get(part)) for part in ("driver", "pool", "device"))
    if result.get("adminAccess") is True or driver not in load_dra_drivers().by_name:
        return None
    return (shared(driver), shared(pool), shared(device)) if pool and device else None


def _object_name(obj: Mapping[str, Any]) -> str:
    return _name(as_mapping(obj.get("metadata")).get("name"))


def _shared_name(value: object) -> str | None:
    return shared(_name(value)) or None


def _name(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= _MAX_NAME_CHARS else ""


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_NUMBER else None
