"""Finds which of many label selectors select a node, without trying them all."""

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

Entry = TypeVar("Entry")
Selector = Mapping[str, tuple[str, ...]]
"""Label -> values, one of which the node must have; every label must match."""

_NONE: Final = ()


class SelectorIndex(Generic[Entry]):
    """Entries by their selectors, each indexed by the values of its selector's first label."""

    def __init__(self, entries: Iterable[tuple[Selector, Entry]]) -> None:
        self._by_label: dict[tuple[str, str], list[tuple[Selector, Entry]]] = {}
        for selector, entry in entries:
            key = min(selector)
            for value in selector[key]:
                self._by_label.setdefault((key, value), []).append((selector, entry))

    def match(self, labels: Mapping[str, str]) -> list[Entry]:
        """Return entries whose selectors select a node with these labels, in the labels' order."""
        return [
            entry
            for label in labels.items()
            for selector, entry in self._by_label.get(label, _NONE)
            if is_selected(labels, selector)
        ]


def is_selected(labels: Mapping[str, str], selector: Selector) -> bool:
    """Whether the labels have one of the selector's values for every key."""
    return all(labels.get(key) in values for key, values in selector.items())


def selector_of(node_selector: Mapping[str, str]) -> Selector:
    """Convert a Pod's nodeSelector, which has one value per key."""
    return {key: (value,) for key, value in sorted(node_selector.items())}
