"""The actions of a plan. Each is idempotent and may be the last one before a crash."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final, NewType

from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.engines.quantity import parse_quantity, read_quantity
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.children import Child


@dataclass(frozen=True, slots=True)
class Apply:
    """Apply a rendered child. `exists`: this reconcile observed it as an owned object."""

    kind: Kind
    body: Object
    exists: bool

    def __str__(self) -> str:
        return f"apply {self.kind.kind} {self.body['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a child exactly as this reconcile read it."""

    kind: Kind
    namespace: str
    child: Child

    def __str__(self) -> str:
        return f"delete {self.kind.kind} {self.child.name}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Set the replicas of a child and change nothing else of it."""

    kind: Kind
    namespace: str
    child: Child
    replicas: int

    def __str__(self) -> str:
        return f"scale {self.kind.kind} {self.child.name} to {self.replicas}"


Action = Apply | Delete | Scale

_DROPPED_IF_ZERO: Final = frozenset(
    {
        "annotations", "hostIPC", "hostNetwork", "hostPID", "hostPort", "initialDelaySeconds",
        "labels", "limits", "nodeSelector", "readOnly", "requests", "stdin", "tty",
    }
)  # fmt: skip
"""Fields that the API server leaves out where they are false, 0 or empty (`omitempty` without a
pointer in core/v1/types.go); of others absence means something else."""

_QUANTITY_PARENTS: Final = frozenset({"requests", "limits", "sizeLimit", "storage", "divisor"})
"""Fields of a pod whose value is a quantity, or has quantities by name."""

Stamped = NewType("Stamped", Object)
"""A child as it is applied: rendered, with the digest that later reveals a change."""


def digest(value: object) -> str:
    """A short, stable digest of JSON data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16]


def apply_if_changed(kind: Kind, wanted: Stamped, live: Child | None) -> tuple[Apply, ...]:
    """The action that makes `live` equal to `wanted`; none if it is already.

    Two things reveal a change: the digest that `stamped` left on the child (the operator rendered
    or dropped something) and the child's own fields (another client changed one).
    """
    if live is None:
        return (Apply(kind, wanted, exists=False),)
    if _contains(live.body, wanted):
        return ()
    return (Apply(kind, pin_to_uid(wanted, live.uid), exists=True),)


def pin_to_uid(wanted: Object, uid: str) -> Object:
    """The body that applies only to the object of this uid: applying it to another object of the
    same name is a conflict."""
    return {**wanted, "metadata": {**wanted["metadata"], "uid": uid}}


def stamped(rendered: Object) -> Stamped:
    """Add the digest of a rendered child to its annotations."""
    metadata = rendered["metadata"]
    annotations = {**metadata.get("annotations", {}), ANNOTATION_RENDERED: digest(rendered)}
    return Stamped({**rendered, "metadata": {**metadata, "annotations": annotations}})


def _contains(live: object, wanted: object) -> bool:
    """Whether `live` has all of `wanted`, and maybe more that other clients added.

    Users write parts of a pod as they like, and the API server leaves out what is empty and writes
    quantities its own way: such a value counts as absent, and 1024Mi as 1Gi.

    Server-side apply merges lists of named items (containers, variables, volumes, mounts), so each
    wanted item has to be among them; all other lists must be equal. A name alone does not identify
    an item: a pod may mount one volume twice.
    """
    if live == wanted:
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            _contains_field(live, key, value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _contains_items(live, wanted)
    return False


def _contains_field(live: dict[str, Any], key: str, value: object) -> bool:
    if key not in live:
        return value in ("", []) or (not value and key in _DROPPED_IF_ZERO)
    if key in _QUANTITY_PARENTS and _same_quantities(live[key], value):
        return True
    return _contains(live[key], value)


def _same_quantities(live: object, wanted: object) -> bool:
    """Whether two quantities, or the quantities of `wanted` by name, have the same values."""
    if isinstance(live, dict) and isinstance(wanted, dict):
        return all(_same_quantities(live.get(name), value) for name, value in wanted.items())
    texts = read_quantity(live), read_quantity(wanted)
    return all(texts) and parse_quantity(texts[0] or "") == parse_quantity(texts[1] or "")


def _contains_items(live: list[Any], wanted: list[Any]) -> bool:
    if all(isinstance(item, dict) and "name" in item for item in [*wanted, *live]):
        return all(any(_contains(other, item) for other in live) for item in wanted)
    return len(live) == len(wanted) and all(map(_contains, live, wanted))
