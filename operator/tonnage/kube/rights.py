"""Which right a request needs, and which rights the API server has denied.

A 403 of its authorizer names the missing right. Any other 403, such as a quota's or an admission
webhook's, is about the object, and more rights would not help.
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
"""Anchored at the start, so that no webhook can imitate it: such a message starts otherwise."""

_GRANTED_BY_NAME: Final = frozenset({("", "secrets")})
"""Resources of which a role grants single objects. A denial concerns the InferenceDeployment that
names another object, and its status says so: the role of the operator does not lack anything."""

_VERBS: Final = frozenset({"get", "list", "watch", "create", "update", "patch", "delete"})


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource, as a role grants it; without a namespace in the whole cluster."""

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
        """The rule to add to the operator's role."""
        return (
            f'add to its role: apiGroups ["{self.group}"], resources ["{self.resource}"],'
            f' verbs ["{self.verb}"]'
        )


def parse_denial(message: str, required: Right) -> Right | None:
    """The right that the authorizer's message denies; None for any other message.

    Only the verb comes from the message, since a patch that creates an object needs `create` too.
    The rest comes from the request: others can write parts of the message.
    """
    match = _DENIAL.match(message)
    if match is None or match["verb"] not in _VERBS:
        return None
    return replace(required, verb=match["verb"])


class PermissionTracker:
    """Rights that the API server denied, and allowed since; for one event loop."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._denied_at: dict[Right, float] = {}
        self._ever_denied: set[tuple[str, str]] = set()

    def denied(self, right: Right) -> None:
        """Record that the API server denied the right."""
        if (right.group, right.resource) in _GRANTED_BY_NAME:
            return
        if right not in self._denied_at:
            _log.error("right missing: the operator may not %s; %s", right, right.remedy)
        self._denied_at[right] = self._clock()
        self._ever_denied.add((right.verb, right.resource))

    def used(self, right: Right) -> None:
        """Record that the API server allowed the right."""
        if self._denied_at.pop(right, None) is not None:
            _log.info("right granted: the operator may %s", right)

    def missing(self) -> dict[tuple[str, str], bool]:
        """Each verb and resource ever denied, and whether the right is missing now."""
        oldest = self._clock() - delays.FORGET_DENIAL
        self._denied_at = {right: at for right, at in self._denied_at.items() if at > oldest}
        denied = {(right.verb, right.resource) for right in self._denied_at}
        return {each: each in denied for each in sorted(self._ever_denied)}
