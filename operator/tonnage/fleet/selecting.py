"""Which of many label selectors select a node, without trying them all."""

from collections.abc import Iterable, Mapping
from typing import Final, Generic, TypeVar

Entry = TypeVar("Entry")
Selector = Mapping[str, tuple[str, ...]]
"""Label -> values, one of which the node must have; every label must match."""

_NONE: Final = ()


class SelectorIndex(Generic[Entry]):
    """Entries by their selectors; each is found by the values of its first label."""

    def __init__(self, entries: Iterable[tuple[Selector, Entry]]) -> None:
        self._found_by: dict[tuple[str, str], list[tuple[Selector, Entry]]] = {}
        for selector, entry in entries:
            key = min(selector)
            for value in selector[key]:
                self._found_by.setdefault((key, value), []).append((selector, entry))

    def selecting(self, labels: Mapping[str, str]) -> list[Entry]:
        """The entries whose selectors select a node with these labels, in the labels' order."""
        return [
            entry
            for item in labels.items()
            for selector, entry in self._found_by.get(item, _NONE)
            if is_selected(labels, selector)
        ]


def is_selected(labels: Mapping[str, str], selector: Selector) -> bool:
    """Whether a node with these labels has one of the values of every label."""
    return all(labels.get(key) in values for key, values in selector.items())


def selector_of(node_selector: Mapping[str, str]) -> Selector:
    """A nodeSelector, as a Pod has it, with its single values."""
    return {key: (value,) for key, value in sorted(node_selector.items())}
