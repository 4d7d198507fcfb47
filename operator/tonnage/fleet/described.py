"""What a group of nodes is, and why some of its classes are no capacity: until these change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tonnage.api.pod import Toleration
from tonnage.catalog.catalog import Catalog
from tonnage.fleet.borders import Outline
from tonnage.fleet.group import Group
from tonnage.fleet.model import DeclaredPool
from tonnage.fleet.node_class import NodeClass, UnknownGroup
from tonnage.fleet.shape import Shape, shape_declared, shape_known, shape_unknown
from tonnage.fleet.usability import why_not_tolerated, why_unusable

Reasons = Mapping[NodeClass, str | None]
"""Why the nodes of a class are no capacity, None where they are."""


@dataclass(frozen=True, slots=True)
class Described:
    """A group's shape and the outline that its borders depend on; `reasons` hold for pods with the
    pool's own tolerations, `tainted` are classes with nothing but a taint in the way."""

    declared: DeclaredPool | None
    shape: Shape
    outline: Outline
    reasons: Reasons
    tainted: Sequence[NodeClass]

    def open_to(self, tolerations: Sequence[Toleration]) -> frozenset[NodeClass]:
        """The tainted classes that are capacity for pods with these tolerations beside the pool's
        own."""
        own = self.declared.spec.tolerations if self.declared else []
        tolerated = [*own, *tolerations]
        return frozenset(
            kind for kind in self.tainted if why_not_tolerated(kind, tolerated) is None
        )

    def reasons_without(self, tolerated: Collection[NodeClass]) -> Reasons:
        """The reasons for pods that tolerate the taints of these classes."""
        return {**self.reasons, **dict.fromkeys(tolerated)}


def describe(group: Group, declared: DeclaredPool | None, catalog: Catalog) -> Described:
    """What the group is now."""
    shape = _shape(group, declared, catalog)
    own = declared.spec.tolerations if declared else []
    reasons: dict[NodeClass, str | None] = {}
    tainted = []
    for kind in group.classes:
        reasons[kind] = why_unusable(kind, shape)
        if reasons[kind] is None:
            reasons[kind] = why_not_tolerated(kind, own)
            if reasons[kind] is not None:
                tainted.append(kind)
    outline = Outline(
        key=group.key,
        node_selector=shape.node_selector,
        labels=frozenset(frozenset(kind.labels.items()) for kind in group.classes),
        selecting=frozenset(kind.selecting for kind in group.classes),
    )
    return Described(declared, shape, outline, reasons, tainted)


def _shape(group: Group, declared: DeclaredPool | None, catalog: Catalog) -> Shape:
    kinds = {kind: alike.count for kind, alike in group.classes.items()}
    if declared is not None:
        return shape_declared(declared, kinds, catalog)
    if isinstance(group.key, UnknownGroup):
        return shape_unknown(group.key.resource, kinds)
    return shape_known(kinds)
