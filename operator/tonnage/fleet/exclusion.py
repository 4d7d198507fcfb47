"""What keeps pods of one pool off the nodes of another with the same labels.

A discovered pool is selected by its cards; where a declared pool has taken some nodes with these
cards, its labels have to be excluded. The same holds for declared pools that overlap.
"""

from collections.abc import Mapping, Sequence

from tonnage.fleet.grouping import Group
from tonnage.fleet.model import Node
from tonnage.fleet.selecting import SelectorIndex

Exclusion = dict[str, tuple[str, ...]]


def exclude(groups: Sequence[Group]) -> Mapping[str, Exclusion]:
    """For each group's name the labels that none of its nodes may have, by value."""
    index = SelectorIndex((group.node_selector, group) for group in groups)
    exclusions: dict[str, dict[str, set[str]]] = {group.name: {} for group in groups}
    for other in groups:
        if other.declared is None:
            continue
        selecting = {group.name: group for node in other.nodes for group in index.selecting(node)}
        for name, group in selecting.items():
            label = _label_of_none(other.declared.spec.node_selector, group.nodes)
            if group is not other and label is not None:
                exclusions[name].setdefault(label[0], set()).add(label[1])
    return {
        name: {key: tuple(sorted(values)) for key, values in sorted(labels.items())}
        for name, labels in exclusions.items()
    }


def _label_of_none(selector: Mapping[str, str], nodes: Sequence[Node]) -> tuple[str, str] | None:
    """A label of the selector that none of these nodes has; together they never have all of it."""
    for key, value in sorted(selector.items()):
        if not any(node.labels.get(key) == value for node in nodes):
            return key, value
    return None
