"""Checks bounds of untrusted YAML before any object is built.

libyaml composes on the C stack, where 200,000 opening brackets end the process with a fault that
no `except` catches; and nine lines of aliases can expand to a billion values. The stream of parser
events is flat, so one more pass over it detects both.
"""

from collections.abc import Iterable
from typing import Final, NoReturn

import yaml

MAX_DEPTH: Final = 100
"""Deepest nesting; objects of Kubernetes itself stay below 30."""
MAX_VALUES: Final = 10_000_000
"""Most values of one stream, with aliases expanded."""


class OutOfBoundsError(Exception):
    """The stream is too deep, too large or recursive; the message names the line."""


def check_bounds(events: Iterable[yaml.Event]) -> None:
    """Read all events of a stream. Raises OutOfBoundsError, and the errors of the parser."""
    counter = _ValueCounter()
    for event in events:
        counter.add(event)


class _ValueCounter:
    """Counts the values of the stream with aliases expanded, and its depth.

    `sizes` holds the values counted in the stream (first) and in each open collection,
    `open_anchors` the anchors of these, `anchored` the values behind each closed anchor.
    """

    def __init__(self) -> None:
        self.sizes = [0]
        self.open_anchors: list[str | None] = [None]
        self.anchored: dict[str | None, int] = {}

    def add(self, event: yaml.Event) -> None:
        match event:
            case yaml.CollectionStartEvent():
                self.sizes.append(1)
                self.open_anchors.append(event.anchor)
            case yaml.CollectionEndEvent():
                self._close(self.sizes.pop(), self.open_anchors.pop())
            case yaml.ScalarEvent():
                self._close(1, event.anchor)
            case yaml.AliasEvent() if event.anchor in self.open_anchors:
                _refuse(event, f"*{event.anchor} contains itself")
            case yaml.AliasEvent():
                # The parser reports an alias without an anchor.
                self._close(self.anchored.get(event.anchor, 1), None)
        if len(self.sizes) > MAX_DEPTH:
            _refuse(event, f"the value is nested deeper than {MAX_DEPTH} levels")
        if self.sizes[-1] > MAX_VALUES:
            _refuse(event, f"up to here the file expands to more than {MAX_VALUES:,} values")

    def _close(self, size: int, anchor: str | None) -> None:
        self.sizes[-1] += size
        if anchor is not None:
            self.anchored[anchor] = size


def _refuse(event: yaml.Event, problem: str) -> NoReturn:
    line = event.start_mark.line + 1 if event.start_mark else 0
    raise OutOfBoundsError(f"line {line}: {problem}")
