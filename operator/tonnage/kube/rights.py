"""Which right a request needs, and which rights the API server has denied.

A 403 of its authorizer names the right that is missing. Any other 403 is about the object, as a
quota's or an admission's, and more rights would not help.
"""

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from tonnage import delays

_log = logging.getLogger(__name__)

_DENIAL: Final = re.compile(
    r'[a-z0-9./-]+(?: "[^"]*")? is forbidden: User "(?:[^"\\]|\\.)*" cannot (?P<verb>[a-z]+) '
)
"""From its first character on, so that no webhook can say it: those words begin with its name."""

_VERBS: Final = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, as a rule of a role grants it; without a namespace in all."""

    verb: str
    group: str
    resource: str
    namespace: str | None

    def __str__(self) -> str:
        name = f"{self.resource}.{self.group}" if self.group else self.resource
        place = f"in namespace {self.namespace}" if self.namespace else "in the whole cluster"
        return f"{self.verb} {name} {place}"

    @property
    def remedy(self) -> str:
        """The rule that its role lacks."""
        return (
            f'add to its role: apiGroups ["{self.group}"], resources ["{self.resource}"],'
            f' verbs ["{self.verb}"]'
        )


def read_denial(message: str, asked: Right) -> Right | None:
    """The right that the authorizer's message denies; None for any other message.

    A patch that would make an object needs `create` too; all else is known from what was asked,
    and is not taken from text that others can write.
    """
    found = _DENIAL.match(message)
    if found is None or found["verb"] not in _VERBS:
        return None
    return replace(asked, verb=found["verb"])


class RightsBook:
    """What was denied last, and what was allowed since; for one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._denied_at: dict[Right, float] = {}
        self._ever_denied: set[tuple[str, str]] = set()

    def denied(self, right: Right) -> None:
        """The API server denied it."""
        if right not in self._denied_at:
            _log.error("right missing: the operator may not %s; %s", right, right.remedy)
        self._denied_at[right] = self._clock()
        self._ever_denied.add((right.verb, right.resource))

    def used(self, right: Right) -> None:
        """The API server allowed it."""
        if self._denied_at.pop(right, None) is not None:
            _log.info("right granted: the operator may %s", right)

    def missing(self) -> dict[tuple[str, str], bool]:
        """Each verb and resource that was ever denied, and whether it is missing now."""
        oldest = self._clock() - delays.FORGET_DENIAL
        self._denied_at = {right: at for right, at in self._denied_at.items() if at > oldest}
        now = {(right.verb, right.resource) for right in self._denied_at}
        return {each: each in now for each in sorted(self._ever_denied)}
