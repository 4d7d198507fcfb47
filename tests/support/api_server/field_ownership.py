"""Server-side apply on plain dicts: who owns which field, and what an apply changes.

Enough of https://kubernetes.io/docs/reference/using-api/server-side-apply/ for an operator's tests:
forced applies, removal of fields that their last owner drops, lists that are maps. No defaulting.
"""

from collections.abc import Mapping
from typing import Any

Step = str | tuple[Any, ...]
"""A key of a mapping, or the identity of an item in a list that is a map."""
Path = tuple[Step, ...]
Fields = dict[Path, Any]
"""An object as its leaves, in order; atomic lists and empty mappings are leaves."""

MAP_LISTS: Mapping[str, tuple[str, ...]] = {
    "conditions": ("type",),
    "ownerReferences": ("uid",),
    "containers": ("name",),
    "initContainers": ("name",),
    "env": ("name",),
    "volumes": ("name",),
    "volumeMounts": ("mountPath",),
    "imagePullSecrets": ("name",),
    "ports": ("containerPort", "port", "protocol"),
}
CUSTOM_MAP_LISTS: Mapping[str, tuple[str, ...]] = {
    name: MAP_LISTS[name] for name in ("conditions", "ownerReferences")
}
"""In a custom resource every list is atomic unless its schema says otherwise."""

_DEFAULTS = {"protocol": "TCP"}


def flatten(node: Any, map_lists: Mapping[str, tuple[str, ...]], path: Path = ()) -> Fields:
    """All leaves of an object; absent and null are the same."""
    fields: Fields = {}
    _add_leaves(fields, node, map_lists, path)
    return fields


def _add_leaves(
    fields: Fields, node: Any, map_lists: Mapping[str, tuple[str, ...]], path: Path
) -> None:
    if isinstance(node, dict) and node:
        for key, child in node.items():
            _add_leaves(fields, child, map_lists, (*path, key))
    elif isinstance(node, list) and node and path and path[-1] in map_lists:
        keys = map_lists[str(path[-1])]
        for item in node:
            identity = tuple(item.get(key, _DEFAULTS.get(key)) for key in keys)
            _add_leaves(fields, item, map_lists, (*path, identity))
    elif path and node is not None:
        fields[path] = node


def unflatten(fields: Fields) -> dict[str, Any]:
    """The object that has these leaves."""
    root: dict[Step, Any] = {}
    for path, value in fields.items():
        node = root
        for step in path[:-1]:
            node = node.setdefault(step, {})
        node[path[-1]] = value
    plain: dict[str, Any] = _plain(root)
    return plain


def _plain(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    if node and all(isinstance(step, tuple) for step in node):
        return [_plain(child) for child in node.values()]
    return {step: _plain(child) for step, child in node.items()}


class Ownership:
    """Which manager owns which leaves of one object."""

    def __init__(self) -> None:
        self._owned: dict[str, set[Path]] = {}

    @property
    def managers(self) -> set[str]:
        """Managers that own anything."""
        return {manager for manager, paths in self._owned.items() if paths}

    def copy(self) -> "Ownership":
        """The same owners, of which either can change."""
        other = Ownership()
        other._owned = {manager: set(paths) for manager, paths in self._owned.items()}
        return other

    def apply(self, live: Fields, wanted: Fields, manager: str) -> Fields:
        """The leaves after a forced apply of `wanted`."""
        dropped = self._owned.get(manager, set()) - set(wanted)
        self._owned[manager] = set()
        others = set().union(*self._owned.values())
        result = {path: leaf for path, leaf in live.items() if path not in dropped - others}
        for path in [path for path in wanted if path not in result]:
            _remove_conflicting(result, path)
        changed = {path for path, leaf in wanted.items() if result.get(path) != leaf}
        result.update(wanted)
        self._take(changed)
        self._owned[manager] = set(wanted)
        return result

    def update(self, live: Fields, stored: Fields, manager: str) -> None:
        """Record a replace: the manager owns what it changed, and no manager what it removed."""
        changed = {path for path, leaf in stored.items() if live.get(path) != leaf}
        self._take(changed | (set(live) - set(stored)))
        self._owned.setdefault(manager, set()).update(changed)

    def assign(self, fields: Fields, manager: str) -> None:
        """Let the manager own these leaves, in addition to those that it owns already."""
        self._owned.setdefault(manager, set()).update(fields)

    def _take(self, paths: set[Path]) -> None:
        for owned in self._owned.values():
            owned -= paths


def _remove_conflicting(fields: Fields, path: Path) -> None:
    """Remove a leaf that stands where a subtree comes, and a subtree where a leaf comes."""
    for other in [other for other in fields if other[: len(path)] == path[: len(other)]]:
        if other != path:
            del fields[other]
