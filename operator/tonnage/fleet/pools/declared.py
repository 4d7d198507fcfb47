"""Reads a declared pool from a raw AcceleratorPool object."""

from collections.abc import Mapping
from typing import Any

from tonnage.api.names import ACCELERATOR_POOL, LABEL_DISCOVERED
from tonnage.api.parse import InvalidSpecError, parse_model
from tonnage.api.pool import AcceleratorPoolSpec
from tonnage.fleet.devices.resources import as_mapping
from tonnage.fleet.model import DeclaredPool


def read_declared_pool(obj: Mapping[str, Any]) -> DeclaredPool | None:
    """Read an AcceleratorPool; None for one that the operator created for discovered nodes.

    Raises InvalidSpecError, which names the object and the field.
    """
    metadata = as_mapping(obj.get("metadata"))
    labels = {
        key: value
        for key, value in as_mapping(metadata.get("labels")).items()
        if isinstance(key, str) and isinstance(value, str)
    }
    if labels.get(LABEL_DISCOVERED) == "true":
        return None
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise InvalidSpecError(f"{ACCELERATOR_POOL}: metadata.name: is required")
    try:
        spec = parse_model(AcceleratorPoolSpec, obj.get("spec"), "spec")
    except InvalidSpecError as error:
        raise InvalidSpecError(f"{ACCELERATOR_POOL} {name}: {error}") from None
    return DeclaredPool(name, labels, spec)
