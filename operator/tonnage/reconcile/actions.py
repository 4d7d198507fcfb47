"""The actions of a plan. Each is idempotent and may be the last one before a crash."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NewType

from tonnage.api.names import ANNOTATION_RENDERED, ANNOTATION_TEMPLATE
from tonnage.api.text import digest
from tonnage.kube.protocol import Kind, Object
from tonnage.reconcile.observation.children import Child
from tonnage.reconcile.observation.template_record import (
    admitted_annotation,
    is_as_admitted,
    template_of,
)
from tonnage.workloads.registry import workload_kind_of


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


def creates(action: Action) -> bool:
    """Whether the action creates a child."""
    return isinstance(action, Apply) and not action.exists


Stamped = NewType("Stamped", Object)
"""A child as it is applied: rendered, with the digest that later reveals a change."""


def apply_if_changed(kind: Kind, wanted: Stamped, live: Child | None) -> tuple[Apply, ...]:
    """The action that makes `live` equal to `wanted`; none if it is already.

    Two things reveal a change: the digest that `stamped` left on the child (the operator rendered
    or dropped something) and the child's own fields (another client changed one).
    """
    if live is None:
        return (Apply(kind, wanted, exists=False),)
    if _contains(live.body, _without_admitted(wanted, live.body)):
        return ()
    return (Apply(kind, pin_to_uid(wanted, live.uid), exists=True),)


def changed_by_admission(applied: Object, answer: Object) -> dict[str, str]:
    """The annotation to add to a Deployment that was applied, where admission changed its template;
    none where it did not."""
    if _contains(template_of(answer), template_of(applied)):
        return {}
    return admitted_annotation(answer)


def _without_admitted(wanted: Object, live: Object) -> Object:
    """What to compare with the live object: without a template that admission changes, as long as
    the live one is what came of it."""
    if _template_name(live) != _template_name(wanted) or not is_as_admitted(live):
        return wanted
    return workload_kind_of(wanted).without_template(wanted)


def _template_name(body: Object) -> str | None:
    return (body["metadata"].get("annotations") or {}).get(ANNOTATION_TEMPLATE)


def pin_to_uid(wanted: Object, uid: str) -> Object:
    """The body that applies only to the object of this uid: applying it to another object of the
    same name is a conflict."""
    return {**wanted, "metadata": {**wanted["metadata"], "uid": uid}}


def with_annotations(body: Object, annotations: Mapping[str, str]) -> Object:
    """The body with more annotations."""
    metadata = body["metadata"]
    own = metadata.get("annotations") or {}
    return {**body, "metadata": {**metadata, "annotations": {**own, **annotations}}}


def stamped(rendered: Object, record: Mapping[str, str] = MappingProxyType({})) -> Stamped:
    """Add the digest of a rendered child to its annotations, and the record of its template, which
    the digest does not cover."""
    return Stamped(with_annotations(rendered, {ANNOTATION_RENDERED: digest(rendered), **record}))


def _contains(live: object, wanted: object) -> bool:
    """Whether `live` has all of `wanted`, and maybe more that other clients added.

    Server-side apply merges lists of named items (containers, variables, volumes, mounts), so each
    wanted item has to be among them; all other lists must be equal. A name alone does not identify
    an item: a pod may mount one volume twice.
    """
    if live == wanted:
        return True
    if isinstance(wanted, dict):
        return isinstance(live, dict) and all(
            key in live and _contains(live[key], value) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return isinstance(live, list) and _contains_items(live, wanted)
    return False


def _contains_items(live: list[Any], wanted: list[Any]) -> bool:
    if all(isinstance(item, dict) and "name" in item for item in [*wanted, *live]):
        return all(any(_contains(other, item) for other in live) for item in wanted)
    return len(live) == len(wanted) and all(map(_contains, live, wanted))
