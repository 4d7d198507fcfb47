"""What a group of nodes is, and why some of its classes are no capacity: until these change."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from tonnage.api.pod import Toleration
from tonnage.fleet.devices.recognize import Recogniser
from tonnage.fleet.devices.resources import dra_driver_of
from tonnage.fleet.dra.requests import request_of
from tonnage.fleet.model import ClaimRequest, DeclaredPool, NodeNetwork, Taint
from tonnage.fleet.nodes.node_class import NodeClass, UnknownGroup
from tonnage.fleet.pools.group import Group
from tonnage.fleet.pools.network import network_of
from tonnage.fleet.pools.separation import GroupLabels
from tonnage.fleet.pools.shape import (
    Shape,
    gpu_node_taints,
    shape_declared,
    shape_known,
    shape_unknown,
)
from tonnage.fleet.pools.usability import why_not_tolerated, why_unusable

Reasons = Mapping[NodeClass, str | None]
"""Why the nodes of a class are no capacity, None where they are."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group's shape, and the labels that its separation depends on. `reasons` hold for pods with
    the pool's own tolerations; only a taint keeps pods off the `tainted_classes`. `taints` mark
    nothing but GPU nodes, `network` is that between the nodes, and `claim` what pods claim."""

    declared: DeclaredPool | None
    shape: Shape
    labels: GroupLabels
    reasons: Reasons
    tainted_classes: Sequence[NodeClass]
    taints: tuple[Taint, ...]
    network: NodeNetwork | None
    claim: ClaimRequest | None

    def tolerated_classes(self, tolerations: Sequence[Toleration]) -> frozenset[NodeClass]:
        """The tainted classes that are capacity for pods with these tolerations in addition to the
        pool's own."""
        own = self.declared.spec.tolerations if self.declared else []
        tolerated = [*own, *tolerations]
        return frozenset(
            node_class
            for node_class in self.tainted_classes
            if why_not_tolerated(node_class, tolerated) is None
        )

    def reasons_without(self, tolerated: Collection[NodeClass]) -> Reasons:
        """The reasons for pods that tolerate the taints of these classes."""
        return {**self.reasons, **dict.fromkeys(tolerated)}


def describe(
    group: Group, declared: DeclaredPool | None, recogniser: Recogniser
) -> GroupDescription:
    """Describe the group as it is now."""
    shape = _shape(group, declared, recogniser)
    own = declared.spec.tolerations if declared else []
    reasons: dict[NodeClass, str | None] = {}
    tainted_classes = []
    for node_class in group.classes:
        reasons[node_class] = why_unusable(node_class, shape)
        if reasons[node_class] is None:
            reasons[node_class] = why_not_tolerated(node_class, own)
            if reasons[node_class] is not None:
                tainted_classes.append(node_class)
    labels = GroupLabels(
        key=group.key,
        node_selector=shape.node_selector,
        node_labels=frozenset(frozenset(node_class.labels.items()) for node_class in group.classes),
        selecting_pools=frozenset(node_class.selecting_pools for node_class in group.classes),
        claimed=_claimed(shape),
    )
    spec = declared.spec if declared else None
    return GroupDescription(
        declared,
        shape,
        labels,
        reasons,
        tainted_classes,
        taints=gpu_node_taints(group.classes),
        network=network_of(spec, shape.networks, shape.domain_label, shape.accelerator),
        claim=request_of(
            shape.resource,
            shape.accelerator,
            spec,
            shape.aligned,
            virtual_function=shape.virtual_function,
        ),
    )


def _claimed(shape: Shape) -> str:
    """What claims of the pool's pods select, empty for GPUs of a device plugin."""
    if dra_driver_of(shape.resource) is None or shape.accelerator is None:
        return ""
    return f"{shape.resource} {shape.accelerator.id} {shape.virtual_function}"


def _shape(group: Group, declared: DeclaredPool | None, recogniser: Recogniser) -> Shape:
    classes = {node_class: counts.nodes for node_class, counts in group.classes.items()}
    if declared is not None:
        return shape_declared(declared, classes, recogniser, group.first_unrecognised)
    if isinstance(group.key, UnknownGroup):
        return shape_unknown(group.key.resource, classes, group.first_unrecognised)
    return shape_known(classes)
