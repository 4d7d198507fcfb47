"""Which fields of an object the operator applied, by `metadata.managedFields`, and whether the
object still is what it applied.

A mutating admission webhook or policy changes an object after server-side apply has recorded the
owners of its fields, so that it changes values and no owner. Any other client that changes a field
becomes its owner.
Source: apiserver pkg/endpoints/handlers/patch.go (applyPatcher, then admission).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from tonnage.api.names import CHILD_FIELD_MANAGER
from tonnage.kube.protocol import Object

Fields = Mapping[str, Any]
"""A fieldsV1: "f:spec" is a field of a mapping, 'k:{"name":"http"}' an item of a list by its key.
An empty one is a leaf: a scalar, an atomic list or an atomic mapping."""


def is_own_apply(entry: Mapping[str, Any]) -> bool:
    """Whether an entry of managedFields is of the operator's own applies to the object itself."""
    return (
        entry.get("manager") == CHILD_FIELD_MANAGER
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def own_fields(obj: Object) -> Fields | None:
    """The fields that the operator applied and that no other client has changed since; None where
    there are none."""
    entries = obj["metadata"].get("managedFields") or []
    return next((entry.get("fieldsV1") or None for entry in entries if is_own_apply(entry)), None)


def has_applied(live: object, wanted: object, owned: Fields | None) -> bool:
    """Whether `live` has all of `wanted`, except where only admission can have changed it: there
    the operator still owns the field.

    `live` may have more, which other clients added. `owned` are the operator's fields at this
    place, None where it owns nothing.
    """
    if live == wanted or (owned is not None and not owned):
        return True
    if isinstance(wanted, dict):
        fields = live if isinstance(live, dict) else {}
        return (owned is not None or isinstance(live, dict)) and all(
            has_applied(fields.get(key), value, (owned or {}).get(f"f:{key}"))
            for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return _have_applied(live if isinstance(live, list) else [], wanted, owned or {})
    return False


def owned_by_key(owned: Fields, item: object) -> Fields | None:
    """The owned fields of a list item, which its key finds; None if none is owned."""
    return next((fields for _, fields in _entries_of(owned, item)), None)


def _entries_of(owned: Fields, item: object) -> Iterator[tuple[dict[str, Any], Fields]]:
    """The key and the fields of each owned list item that has the key of this one. A part of the
    key may be a default that this one leaves out, such as the protocol of a port."""
    if isinstance(item, dict):
        for name, fields in owned.items():
            key = json.loads(name.removeprefix("k:")) if name.startswith("k:") else None
            if key is not None and all(item.get(part, key[part]) == key[part] for part in key):
                yield key, fields


def _have_applied(live: list[Any], wanted: list[Any], owned: Fields) -> bool:
    """Each wanted item of a list that server-side apply merges has to be among the live ones, in
    any order; all other lists must be equal.

    The owned fields know the key of an item. Without them a name alone does not identify it: a pod
    may mount one volume twice.
    """
    named = all(isinstance(item, dict) and "name" in item for item in [*wanted, *live])
    if named or any(name.startswith("k:") for name in owned):
        return all(_has_applied_item(live, item, owned) for item in wanted)
    return len(live) == len(wanted) and all(
        has_applied(one, item, None) for one, item in zip(live, wanted, strict=True)
    )


def _has_applied_item(live: list[Any], item: Any, owned: Fields) -> bool:
    for key, fields in _entries_of(owned, item):
        same = (one for one in live if isinstance(one, dict) and key.items() <= one.items())
        return has_applied(next(same, None), item, fields)
    return any(has_applied(other, item, None) for other in live)
