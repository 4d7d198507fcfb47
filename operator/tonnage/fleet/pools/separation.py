"""Labels that keep the pods of one pool off the nodes of another pool with the same labels.

A discovered pool is selected by the labels of its cards. Where a declared pool takes some of the
nodes with these cards, the discovered pool has to exclude its labels. The same holds for declared
pools that overlap; each of them names the other.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tonnage.fleet.nodes.label_selectors import Selector, SelectorIndex
from tonnage.fleet.nodes.node_class import DeclaredGroup, GroupKey

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class GroupLabels:
    """The labels that a group's separation depends on: those that select it, and those of its
    nodes, each combination once. `selecting_pools` are names of declared pools, once each as well.
    `claimed` names the GPUs where claims select them by their attributes, empty where labels do.
    """

    key: GroupKey
    node_selector: Selector
    node_labels: frozenset[Labels]
    selecting_pools: frozenset[tuple[str, ...]]
    claimed: str = ""


@dataclass(frozen=True, slots=True)
class Separation:
    """`exclusion` are labels that none of the group's nodes may have, by value; `overlaps` names
    declared pools that select some of the same nodes and come first, `overlapped` those that come
    later."""

    exclusion: dict[str, tuple[str, ...]] = field(default_factory=dict)
    overlaps: tuple[str, ...] = ()
    overlapped: tuple[str, ...] = ()


def separate_groups(groups: Sequence[GroupLabels]) -> dict[GroupKey, Separation]:
    """Return the separation of every group."""
    exclusions = _exclude(groups)
    overlaps = _find_overlaps(groups)
    separations = {}
    for group in groups:
        name = group.key.name if isinstance(group.key, DeclaredGroup) else None
        separations[group.key] = Separation(
            exclusion={
                key: tuple(sorted(values)) for key, values in sorted(exclusions[group.key].items())
            },
            overlaps=tuple(sorted(first for first, later in overlaps if later == name)),
            overlapped=tuple(sorted(later for first, later in overlaps if first == name)),
        )
    return separations


def _exclude(groups: Sequence[GroupLabels]) -> dict[GroupKey, dict[str, set[str]]]:
    index = SelectorIndex((group.node_selector, group) for group in groups)
    exclusions: dict[GroupKey, dict[str, set[str]]] = {group.key: {} for group in groups}
    for declared in groups:
        if not isinstance(declared.key, DeclaredGroup):
            continue
        overlapping = {
            group.key: group
            for labels in declared.node_labels
            for group in index.match(dict(labels))
        }
        for key, group in overlapping.items():
            label = _label_of_none(declared.node_selector, group.node_labels)
            if group.claimed and group.claimed != declared.claimed:
                continue  # no claim of its pods selects these GPUs
            if group is not declared and label is not None:
                exclusions[key].setdefault(label[0], set()).add(label[1])
    return exclusions


def _label_of_none(selector: Selector, nodes: Iterable[Labels]) -> tuple[str, str] | None:
    """Return a label of the selector that none of these nodes has; no node has all of them."""
    for key, (value,) in sorted(selector.items()):
        if not any((key, value) in labels for labels in nodes):
            return key, value
    return None


def _find_overlaps(groups: Iterable[GroupLabels]) -> set[tuple[str, str]]:
    """Return pairs of declared pools that select the same nodes: the owner, and one that comes
    later."""
    return {
        (names[0], other)
        for group in groups
        for names in group.selecting_pools
        for other in names[1:]
    }
