"""Where pools touch: what keeps pods of one off the nodes of another with the same labels.

A discovered pool is selected by its cards; where a declared pool has taken some nodes with these
cards, its labels have to be excluded. The same holds for declared pools that overlap, and both say
that they do.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tonnage.fleet.node_class import DeclaredGroup, GroupKey
from tonnage.fleet.selecting import Selector, SelectorIndex

Labels = frozenset[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Outline:
    """What of a group its borders depend on: the labels that select it, and those that its nodes
    have, each combination once."""

    key: GroupKey
    node_selector: Selector
    labels: frozenset[Labels]
    selecting: frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Border:
    """`exclusion` are labels that none of the group's nodes may have, by value; `overlaps` names
    declared pools that select some of the same nodes and come first, `overlapped` those that come
    later."""

    exclusion: dict[str, tuple[str, ...]] = field(default_factory=dict)
    overlaps: tuple[str, ...] = ()
    overlapped: tuple[str, ...] = ()


def draw_borders(outlines: Sequence[Outline]) -> dict[GroupKey, Border]:
    """The border of every group."""
    exclusions = _exclude(outlines)
    first = _first_by_name(outlines)
    borders = {}
    for outline in outlines:
        name = outline.key.name if isinstance(outline.key, DeclaredGroup) else None
        borders[outline.key] = Border(
            exclusion={
                key: tuple(sorted(values))
                for key, values in sorted(exclusions[outline.key].items())
            },
            overlaps=tuple(sorted(one for one, other in first if other == name)),
            overlapped=tuple(sorted(other for one, other in first if one == name)),
        )
    return borders


def _exclude(outlines: Sequence[Outline]) -> dict[GroupKey, dict[str, set[str]]]:
    index = SelectorIndex((found.node_selector, found) for found in outlines)
    exclusions: dict[GroupKey, dict[str, set[str]]] = {found.key: {} for found in outlines}
    for other in outlines:
        if not isinstance(other.key, DeclaredGroup):
            continue
        selecting = {
            found.key: found for one in other.labels for found in index.selecting(dict(one))
        }
        for key, found in selecting.items():
            label = _label_of_none(other.node_selector, found.labels)
            if found is not other and label is not None:
                exclusions[key].setdefault(label[0], set()).add(label[1])
    return exclusions


def _label_of_none(selector: Selector, nodes: Iterable[Labels]) -> tuple[str, str] | None:
    """A label of the selector that none of these nodes has; together they never have all of it."""
    for key, (value,) in sorted(selector.items()):
        if not any((key, value) in labels for labels in nodes):
            return key, value
    return None


def _first_by_name(outlines: Iterable[Outline]) -> set[tuple[str, str]]:
    """Pairs of declared pools that select the same nodes: who has them, and who comes later."""
    return {
        (names[0], other)
        for outline in outlines
        for names in outline.selecting
        for other in names[1:]
    }
