"""Look up the priority of an object's pods, by their PriorityClass.

Kubernetes gives a pod its priority when it is created; an object that waits for GPUs has no pods
yet. So the operator looks up the class: the one that the spec names, else the cluster's default,
else 0. Classes change seldom, and a change affects new pods only, so the classes are kept for ten
minutes.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tonnage import delays
from tonnage.kube.protocol import ForbiddenError, Object, TransientError
from tonnage.reconcile.key import Key

_NAMED: Final = 5


@dataclass(frozen=True, slots=True)
class Precedence:
    """An object's place among those that wait: sorted, the first one goes first.

    `priority` is the value of its PriorityClass, `created` its creationTimestamp.
    """

    priority: int
    created: datetime
    key: Key

    def __lt__(self, other: "Precedence") -> bool:
        """Whether it goes before the other."""
        return self._order() < other._order()

    def _order(self) -> tuple[int, datetime, Key]:
        return (-self.priority, self.created, self.key)


@dataclass(frozen=True, slots=True)
class UnknownPriorityClass:
    """There is no PriorityClass of that name; `known` are the existing ones."""

    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        names = ", ".join(self.known[:_NAMED])
        more = f" and {len(self.known) - _NAMED} more" if len(self.known) > _NAMED else ""
        return (
            f"priorityClassName: there is no PriorityClass {self.name!r};"
            f" create it, or name one of {names}{more}"
        )


FindPriority = Callable[[str | None], Awaitable[int | UnknownPriorityClass]]
"""Maps the name of a PriorityClass, or None, to the priority that its pods get."""


@dataclass(frozen=True, slots=True)
class PriorityClasses:
    """The cluster's classes by name, and the value for pods that name none."""

    values: Mapping[str, int] = field(default_factory=dict)
    default: int = 0

    def find(self, name: str | None) -> int | UnknownPriorityClass:
        """The priority that pods of the class get; 0 where no class is known at all."""
        if name is None:
            return self.default
        if name in self.values or not self.values:
            return self.values.get(name, 0)
        return UnknownPriorityClass(name, tuple(sorted(self.values)))


def read_classes(bodies: Iterable[Object]) -> PriorityClasses:
    """The classes of the API server; of several defaults the lowest counts, as in Kubernetes."""
    classes = list(bodies)
    values = {body["metadata"]["name"]: int(body["value"]) for body in classes}
    defaults = [int(body["value"]) for body in classes if body.get("globalDefault")]
    return PriorityClasses(values, min(defaults, default=0))


async def same_for_all(name: str | None) -> int:
    """The priority where no PriorityClass is known."""
    return 0


class Priorities:
    """Looks priorities up; `read_bodies` reads all PriorityClasses. For one event loop."""

    def __init__(
        self, read_bodies: Callable[[], Awaitable[list[Object]]], now: Callable[[], datetime]
    ) -> None:
        self._read_bodies = read_bodies
        self._now = now
        self._classes = PriorityClasses()
        self._read_at: datetime | None = None

    async def find(self, name: str | None) -> int | UnknownPriorityClass:
        """The priority that pods of the class get. Raises ApiError where that is not known from an
        earlier read."""
        is_unknown = isinstance(self._classes.find(name), UnknownPriorityClass)
        if self._is_outdated() or is_unknown:  # an unknown one may have been created since
            try:
                await self.read()
            except TransientError:
                if self._read_at is None or is_unknown:
                    raise
        return self._classes.find(name)

    def _is_outdated(self) -> bool:
        if self._read_at is None:
            return True
        return (self._now() - self._read_at).total_seconds() >= delays.READ_PRIORITY_CLASSES

    async def read(self) -> PriorityClasses:
        """Read all classes; none where the operator may not read them."""
        try:
            bodies = await self._read_bodies()
        except ForbiddenError:
            bodies = []
        self._classes, self._read_at = read_classes(bodies), self._now()
        return self._classes
