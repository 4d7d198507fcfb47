"""What a plan may do to the cluster. Each action is idempotent and may be the last one done."""

import json
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, NewType

from tonnage.api.names import ANNOTATION_RENDERED
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.children import Child


@dataclass(frozen=True, slots=True)
class Apply:
    """Make a child what was rendered. `exists`: it was seen to be ours in this reconcile."""

    kind: Kind
    body: Object
    exists: bool

    def __str__(self) -> str:
        return f"apply {self.kind.kind} {self.body['metadata']['name']}"


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a child exactly as it was read in this reconcile."""

    kind: Kind
    namespace: str
    child: Child

    def __str__(self) -> str:
        return f"delete {self.kind.kind} {self.child.name}"


@dataclass(frozen=True, slots=True)
class Scale:
    """Let a child have so many replicas, and leave all else of it as it is."""

    kind: Kind
    namespace: str
    child: Child
    replicas: int

    def __str__(self) -> str:
        return f"scale {self.kind.kind} {self.child.name} to {self.replicas}"


Action = Apply | Delete | Scale

Stamped = NewType("Stamped", Object)
"""A child as it is applied: rendered, and with the digest by which a change is told later."""


def digest(value: object) -> str:
    """A short, stable digest of JSON data."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()[:16]


def apply_if_changed(kind: Kind, wanted: Stamped, live: Child | None) -> tuple[Apply, ...]:
    """The action that makes `live` what is wanted, or none when it is that already.

    Two things tell a change: the digest that `stamped` left on the child (something was rendered
    otherwise, also something dropped) and the child's own fields (somebody else changed one of
    those).
    """
    if live is None:
        return (Apply(kind, wanted, exists=False),)
    if _has(live.body, wanted):
        return ()
    return (Apply(kind, pinned(wanted, live.uid), exists=True),)


def pinned(wanted: Object, uid: str) -> Object:
    """What is applied to the object of this uid alone: a namesake that somebody put there meanwhile
    is a conflict and not taken over."""
    return {**wanted, "metadata": {**wanted["metadata"], "uid": uid}}


def stamped(rendered: Object) -> Stamped:
    """What is applied for a rendered child."""
    metadata = rendered["metadata"]
    annotations = {**metadata.get("annotations", {}), ANNOTATION_RENDERED: digest(rendered)}
    return Stamped({**rendered, "metadata": {**metadata, "annotations": annotations}})


def _has(live: object, wanted: object) -> bool:
    """Whether `live` has all of `wanted`; what others added beside it is theirs.

    Lists of named things (containers, variables, volumes, mounts) are merged item by item in
    server-side apply, so each of ours has to be among them; all other lists are compared as a
    whole. A name alone tells no item: one volume may be mounted twice.
    """
    if live == wanted:
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            key in live and _has(live[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _has_items(live, wanted)
    return False


def _has_items(live: list[Any], wanted: list[Any]) -> bool:
    if all(isinstance(item, dict) and "name" in item for item in [*wanted, *live]):
        return all(any(_has(found, item) for found in live) for item in wanted)
    return len(live) == len(wanted) and all(map(_has, live, wanted))
