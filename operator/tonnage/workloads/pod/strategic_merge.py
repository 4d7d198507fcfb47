"""Merges a pod template with a patch as `kubectl patch --type=strategic` merges it.

Objects merge key by key, null deletes a key, and lists are replaced, except for the lists of
`_MERGE_KEYS`, whose items merge by a key of theirs. Source: Kubernetes 1.35,
staging/src/k8s.io/apimachinery/pkg/util/strategicpatch/patch.go (mergeMap, mergeSlice,
normalizeElementOrder), and the `patchStrategy` and `patchMergeKey` tags of
staging/src/k8s.io/api/core/v1/types.go, read on 2026-11-25. `tests/integration` compares both with
a real API server.

Not supported, because no person writes them: `$setElementOrder` and `$deleteFromPrimitiveList`.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

Json = Mapping[str, Any]

PATCH: Final = "$patch"
RETAIN_KEYS: Final = "$retainKeys"
DIRECTIVES: Final = frozenset({PATCH, RETAIN_KEYS})
"""Keys of a patch that are instructions and no fields."""

_DELETE: Final = "delete"
_REPLACE: Final = "replace"
_ABSENT: Final = object()

_CONTAINER_LISTS: Final = ("containers", "initContainers")

_MERGE_KEYS: Final[Mapping[tuple[str, str], str]] = {
    ("spec", "containers"): "name",
    ("spec", "initContainers"): "name",
    ("spec", "volumes"): "name",
    ("spec", "imagePullSecrets"): "name",
    ("spec", "hostAliases"): "ip",
    ("spec", "topologySpreadConstraints"): "topologyKey",
    ("spec", "resourceClaims"): "name",
    ("spec", "schedulingGates"): "name",
    ("container", "env"): "name",
    ("container", "ports"): "containerPort",
    ("container", "volumeMounts"): "mountPath",
    ("container", "volumeDevices"): "devicePath",
}
"""The key by which items of a list merge, by the object that has the list."""


class MergeError(ValueError):
    """A patch that Kubernetes would refuse; `path` is the place in it, as `containers[0].env`."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(f"{path}: {problem}")
        self.path = path
        self.problem = problem


def merge_pod_spec(spec: Json, patch: Json) -> dict[str, Any]:
    """The pod spec with the patch; neither argument is changed. Raises MergeError."""
    return _merge_object(spec, patch, "spec", "spec")


def merge_container(container: Json, patch: Json) -> dict[str, Any]:
    """The container with the patch. Raises MergeError."""
    return _merge_object(container, patch, "container", "container")


def check_directives(value: Any, path: str) -> None:
    """Refuse directives that no merge could follow, at any depth. Raises MergeError."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            check_directives(item, f"{path}[{index}]")
    if isinstance(value, Mapping):
        _read_directive(value, path)
        _retained({}, value, path)
        for name, each in value.items():
            check_directives(each, f"{path}.{name}")


def _read_directive(patch: Json, path: str) -> Any:
    directive = patch.get(PATCH)
    if directive not in (None, _DELETE, _REPLACE):
        raise MergeError(f"{path}.{PATCH}", "expected replace or delete")
    return directive


def _merge_object(original: Json, patch: Json, kind: str, path: str) -> dict[str, Any]:
    directive = _read_directive(patch, path)
    if directive == _DELETE:
        return {}
    if directive == _REPLACE:
        return dict(_stored(patch))
    merged = dict(_retained(original, patch, path))
    for name, value in patch.items():
        if name in DIRECTIVES:
            continue
        if value is None:
            merged.pop(name, None)
            continue
        merged[name] = _merge_value(merged.get(name), value, kind, name, f"{path}.{name}")
    return {name: value for name, value in merged.items() if value is not _ABSENT}


def _merge_value(before: Any, value: Any, kind: str, name: str, path: str) -> Any:
    """The value of a field, `_ABSENT` where it has none."""
    key = _MERGE_KEYS.get((kind, name))
    if key is not None:
        _check_items(value, key, path)
    if isinstance(value, Mapping) and isinstance(before, Mapping):
        return _merge_object(before, value, _kind_of(kind, name), path)
    if isinstance(value, list) and isinstance(before, list):
        return _merge_list(before, value, key, _kind_of(kind, name), path)
    return _added(value)


def _retained(original: Json, patch: Json, path: str) -> Json:
    """The original without the keys that `$retainKeys` does not list."""
    retained = patch.get(RETAIN_KEYS)
    if retained is None:
        return original
    if not isinstance(retained, list):
        raise MergeError(f"{path}.{RETAIN_KEYS}", "expected a list of keys")
    missing = [
        name
        for name, value in patch.items()
        if value is not None and name not in (*retained, *DIRECTIVES)
    ]
    if missing:
        raise MergeError(f"{path}.{RETAIN_KEYS}", f"lacks {missing[0]!r}, which the patch sets")
    return {name: value for name, value in original.items() if name in retained}


def _check_items(items: Any, key: str, path: str) -> None:
    if not isinstance(items, list):
        raise MergeError(path, "expected a list")
    for index, item in enumerate(items):
        if not isinstance(item, Mapping):
            raise MergeError(f"{path}[{index}]", "expected an object")
        if item.get(PATCH) != _REPLACE and not isinstance(item.get(key), str | int):
            raise MergeError(
                f"{path}[{index}]", f"{key} is required, since items of the list merge by it"
            )


def _kind_of(kind: str, name: str) -> str:
    """The kind of the value of a field: a container, or an object without lists that merge."""
    return "container" if kind == "spec" and name in _CONTAINER_LISTS else ""


def _merge_list(
    original: Sequence[Any], patch: Sequence[Any], key: str | None, kind: str, path: str
) -> list[Any]:
    if key is None:
        return [_stored(item) for item in patch]
    items = list(original)
    written: list[Json] = []
    replaces = False
    for index, item in enumerate(patch):
        directive = _read_directive(item, f"{path}[{index}]")
        if directive == _REPLACE:
            replaces = True
        elif directive == _DELETE:
            items = [each for each in items if each[key] != item[key]]
        else:
            written.append(item)
    if replaces:
        return [_stored(item) for item in written]
    for index, item in enumerate(written):
        position = next((n for n, each in enumerate(items) if each[key] == item[key]), None)
        if position is None:
            items.append(_stored(item))
        else:
            items[position] = _merge_object(items[position], item, kind, f"{path}[{index}]")
    return _in_order(items, [item[key] for item in written], original, key)


def _in_order(
    items: Sequence[Json], written: Sequence[Any], original: Sequence[Json], key: str
) -> list[Json]:
    """The items in the order of the patch, with the others between them where they were before.

    An item that the patch does not name comes before the next one that it names if it came before
    it in the original, and else as late as possible.
    """
    order = {item[key]: position for position, item in reversed(list(enumerate(original)))}
    places = {value: position for position, value in reversed(list(enumerate(written)))}
    patched = sorted((item for item in items if item[key] in places), key=lambda i: places[i[key]])
    others = [item for item in items if item[key] not in places]
    merged: list[Json] = []
    while patched and others:
        left, right = order.get(others[0][key]), order.get(patched[0][key])
        is_before = left is not None and right is not None and left < right
        merged.append((others if is_before else patched).pop(0))
    return [*merged, *patched, *others]


def _added(value: Any) -> Any:
    """A value that the original does not have; `_ABSENT` for an object with `$patch`, of which
    there is nothing to replace or delete."""
    if isinstance(value, Mapping):
        if PATCH in value:
            return _ABSENT
        added = {name: _added(inner) for name, inner in value.items()}
        return _stored({name: inner for name, inner in added.items() if inner is not _ABSENT})
    if isinstance(value, list):
        return [inner for inner in map(_added, value) if inner is not _ABSENT]
    return value


def _stored(value: Any) -> Any:
    """A value as the API server stores it: without nulls in objects and without directives."""
    if isinstance(value, Mapping):
        return {
            name: _stored(inner)
            for name, inner in value.items()
            if inner is not None and name not in DIRECTIVES
        }
    if isinstance(value, list):
        return [_stored(item) for item in value]
    return value
