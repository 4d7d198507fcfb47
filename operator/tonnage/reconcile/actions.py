"""The actions of a plan. Each is idempotent and may be the last one before a crash."""

from dataclasses import dataclass
from typing import NewType

from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.kube.managed_fields import has_applied, own_fields
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.digests import digest


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
    child: Child

    def __str__(self) -> str:
        return f"delete {self.kind.kind} {self.child.name}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Set the replicas of a child and change nothing else of it."""

    kind: Kind
    child: Child
    replicas: int

    def __str__(self) -> str:
        return f"scale {self.kind.kind} {self.child.name} to {self.replicas}"


Action = Apply | Delete | Scale

Stamped = NewType("Stamped", Object)
"""A child as it is applied: rendered, with the digest that later reveals a change."""


def apply_if_changed(kind: Kind, wanted: Stamped, live: Child | None) -> tuple[Apply, ...]:
    """The action that makes `live` equal to `wanted`; none if it is already.

    Two things reveal a change: the digest that `stamped` left on the child (the operator rendered
    or dropped something) and the child's own fields (another client changed one). What admission
    made of the operator's own apply is no change: the next apply would end the same way.
    """
    if live is None:
        return (Apply(kind, wanted, exists=False),)
    if _is_applied(live.body, wanted):
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


def _is_applied(live: Object, wanted: Stamped) -> bool:
    return _digest_of(live) == _digest_of(wanted) and has_applied(live, wanted, own_fields(live))


def _digest_of(body: Object) -> object:
    return (body["metadata"].get("annotations") or {}).get(ANNOTATION_RENDERED)
